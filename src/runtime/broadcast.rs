//! How commands reach every worker of a runtime in one order: through a dataflow.
//!
//! Worker 0 takes commands from its inbox and sends each to every worker. There is one sender, and channels keep order,
//! so all workers see the same sequence; dataflows are therefore built in the same order everywhere, which timely needs
//! for its channels to meet (H22). Nothing orders the two runtimes, nor the workers against each other in time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use timely::dataflow::channels::pact::Exchange;
use timely::dataflow::operators::generic::{Operator, source};
use timely::scheduling::Activator;
use timely::worker::Worker;

use super::inbox::Inbox;
use crate::protocol::Command;

/// What travels to the workers of a runtime.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Directive {
    /// A command of the controller.
    Command(Command),
    /// The worker ends its turn loop.
    Shutdown,
}

/// One worker's end of the broadcast.
pub(super) struct Broadcast {
    /// Only worker 0 has one.
    inbox: Option<Inbox<Directive>>,
    outgoing: Rc<RefCell<VecDeque<Directive>>>,
    incoming: Rc<RefCell<VecDeque<Directive>>>,
    activator: Activator,
}

impl Broadcast {
    /// Builds the dataflow. Every worker must do so first.
    pub(super) fn new(worker: &mut Worker, inbox: Option<Inbox<Directive>>) -> Self {
        let outgoing = Rc::new(RefCell::new(VecDeque::<Directive>::new()));
        let incoming = Rc::new(RefCell::new(VecDeque::new()));
        let (queue, received) = (Rc::clone(&outgoing), Rc::clone(&incoming));
        let (sends, peers) = (inbox.is_some(), worker.peers() as u64);
        let activator = worker.dataflow_named::<u64, _, _>("commands", |scope| {
            let mut activator = None;
            let stream = source(scope, "Inbox", |capability, info| {
                activator = Some(scope.activator_for(info.address));
                // Those who never send must not hold back the end of the stream.
                let capability = sends.then_some(capability);
                move |output| {
                    let Some(capability) = &capability else { return };
                    let mut session = output.session(capability);
                    for directive in queue.borrow_mut().drain(..) {
                        for peer in 0..peers {
                            session.give((peer, directive.clone()));
                        }
                    }
                }
            });
            let by_peer = Exchange::new(|(peer, _): &(u64, Directive)| *peer);
            stream.sink(by_peer, "Receive", move |(input, _frontier)| {
                input.for_each(|_, directives: &mut Vec<_>| {
                    received
                        .borrow_mut()
                        .extend(directives.drain(..).map(|(_, directive)| directive));
                });
            });
            activator.expect("the source was just built")
        });
        if let Some(inbox) = &inbox {
            inbox.attach();
        }
        Broadcast { inbox, outgoing, incoming, activator }
    }

    /// Hands what is in the inbox to the dataflow.
    pub(super) fn send(&self) {
        let Some(inbox) = &self.inbox else { return };
        let directives = inbox.drain();
        if !directives.is_empty() {
            self.outgoing.borrow_mut().extend(directives);
            self.activator.activate();
        }
    }

    /// Takes what has arrived.
    pub(super) fn receive(&self) -> VecDeque<Directive> {
        std::mem::take(&mut *self.incoming.borrow_mut())
    }
}
