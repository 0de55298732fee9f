//! How commands reach a worker: a queue, and the wake that goes with it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::env::Unparker;
use crate::env::sync::Mutex;

struct Shared<M> {
    /// Whether there may be messages, so that a reader with nothing to read takes no lock. Set after a message is in.
    pending: AtomicBool,
    state: Mutex<State<M>>,
}

struct State<M> {
    messages: VecDeque<M>,
    reader: Option<Unparker>,
}

/// An ordered queue from any thread to one worker, which is woken by every message.
pub struct Inbox<M>(Arc<Shared<M>>);

impl<M> Clone for Inbox<M> {
    fn clone(&self) -> Self {
        Inbox(Arc::clone(&self.0))
    }
}

impl<M> Default for Inbox<M> {
    fn default() -> Self {
        let state = State { messages: VecDeque::new(), reader: None };
        let (pending, state) = (AtomicBool::new(false), Mutex::new("inbox", state));
        Inbox(Arc::new(Shared { pending, state }))
    }
}

impl<M> Inbox<M> {
    /// Appends a message and wakes the reader, if it has attached.
    pub fn push(&self, message: M) {
        let reader = {
            let mut state = self.0.state.lock();
            state.messages.push_back(message);
            state.reader.clone()
        };
        self.0.pending.store(true, Ordering::SeqCst);
        if let Some(reader) = reader {
            reader.unpark();
        }
    }

    /// Makes the calling thread the one that is woken. Messages that came before are kept.
    pub fn attach(&self) {
        self.0.state.lock().reader = Some(Unparker::current());
    }

    /// Takes all messages. A reader that parks does so only after this returned none.
    pub fn drain(&self) -> VecDeque<M> {
        if !self.0.pending.swap(false, Ordering::SeqCst) {
            return VecDeque::new();
        }
        std::mem::take(&mut self.0.state.lock().messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_order_and_wake_a_parked_reader() {
        let inbox = Inbox::default();
        let reader = {
            let inbox = inbox.clone();
            std::thread::spawn(move || {
                inbox.attach();
                let mut seen = Vec::new();
                while seen.len() < 100 {
                    let messages = inbox.drain();
                    if messages.is_empty() {
                        crate::env::park();
                    }
                    seen.extend(messages);
                }
                seen
            })
        };
        (0..100).for_each(|message| inbox.push(message));
        assert_eq!(reader.join().expect("does not panic"), (0..100).collect::<Vec<_>>());
    }
}
