//! How commands reach a worker: a queue, and the wake that goes with it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::env::Unparker;
use crate::env::sync::Mutex;

struct State<M> {
    messages: VecDeque<M>,
    reader: Option<Unparker>,
}

/// An ordered queue from any thread to one worker, which is woken by every message.
pub struct Inbox<M>(Arc<Mutex<State<M>>>);

impl<M> Clone for Inbox<M> {
    fn clone(&self) -> Self {
        Inbox(Arc::clone(&self.0))
    }
}

impl<M> Default for Inbox<M> {
    fn default() -> Self {
        let state = State { messages: VecDeque::new(), reader: None };
        Inbox(Arc::new(Mutex::new("inbox", state)))
    }
}

impl<M> Inbox<M> {
    /// Appends a message and wakes the reader, if it has attached.
    pub fn push(&self, message: M) {
        let reader = {
            let mut state = self.0.lock();
            state.messages.push_back(message);
            state.reader.clone()
        };
        if let Some(reader) = reader {
            reader.unpark();
        }
    }

    /// Makes the calling thread the one that is woken. Messages that came before are kept.
    pub fn attach(&self) {
        self.0.lock().reader = Some(Unparker::current());
    }

    /// Takes all messages. A reader that parks does so only after this returned none.
    pub fn drain(&self) -> VecDeque<M> {
        std::mem::take(&mut self.0.lock().messages)
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
