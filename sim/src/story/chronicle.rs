//! What happened in a run, entry by entry, and the witness that writes it down.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::Hasher;
use std::rc::Rc;

use tandem::env::{Activity, Event, PartName};
use tandem::protocol::PeekId;
use tandem::repr::GlobalId;

use super::trail::Trail;
use super::words;
use crate::sched::hash::Rolling;
use crate::sched::{Blocked, Observer, ThreadId, nested};
use crate::world::{Fact, Witness};

/// How many entries are kept: the last ones.
const ENTRIES_MAX: usize = 400_000;

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A thread of the replica.
    Thread(ThreadId),
    /// The controller and its user.
    Control,
    /// Process 0 of the replica, at its end of the network.
    Endpoint,
    /// Whoever makes things go wrong.
    Fault,
    /// The oracles.
    Judge,
}

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A command or an answer was sent, delivered, applied or heard.
    Command,
    /// The user asked, cancelled or was answered.
    Ask,
    /// A read captured a view, was refused or waits.
    Capture,
    /// What a trace may forget.
    Compaction,
    /// A dataflow, an index or a point came or went.
    Dataflow,
    /// A new view.
    View,
    /// The state of a trace.
    Trace,
    /// A source was appended to.
    Data,
    /// A thread waited for a lock, or did something that may take long.
    Work,
    /// Something went wrong on purpose.
    Fault,
    /// An oracle fired.
    Verdict,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, in nanoseconds of virtual time on the clock of whoever did it.
    pub at_ns: u64,
    /// Who did it.
    pub who: Who,
    /// What kind of thing it is.
    pub class: Class,
    /// The collections it is about.
    pub ids: Vec<GlobalId>,
    /// The read it is about.
    pub peek: Option<PeekId>,
    /// The worker it is about, counted over all processes.
    pub worker: Option<usize>,
    /// The thing itself.
    pub line: String,
    /// The hash of all that happened so far, this entry included.
    pub hash: u64,
}

/// All that happened in a run, oldest first; of a very long run the last part.
#[derive(Clone, Debug, Default)]
pub struct Chronicle {
    /// The names of the threads, by number.
    threads: Vec<String>,
    /// How many entries came before the first that is kept.
    skipped: u64,
    entries: VecDeque<Entry>,
    /// The hashes of its beginnings.
    pub trail: Trail,
}

impl Chronicle {
    /// The entries that are kept, each with its number, counted from zero.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (u64, &Entry)> {
        self.entries.iter().enumerate().map(|(index, entry)| (self.skipped + index as u64, entry))
    }

    /// How many entries there were.
    pub fn len(&self) -> u64 {
        self.skipped + self.entries.len() as u64
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of whoever did something.
    pub fn name(&self, who: Who) -> &str {
        match who {
            Who::Thread(id) => usize::try_from(id.0)
                .ok()
                .and_then(|index| self.threads.get(index))
                .map_or("driver", String::as_str),
            Who::Control => "control",
            Who::Endpoint => "endpoint",
            Who::Fault => "fault",
            Who::Judge => "judge",
        }
    }

    /// The number of the first entry that is another one, or missing, in `other`.
    pub fn first_difference(&self, other: &Chronicle) -> Option<u64> {
        let start = self.skipped.max(other.skipped);
        let from = |chronicle: &Chronicle| (start - chronicle.skipped) as usize;
        let left = self.entries.iter().skip(from(self));
        let right = other.entries.iter().skip(from(other));
        let same = left.zip(right).take_while(|(left, right)| left.hash == right.hash).count();
        let index = start + same as u64;
        (index < self.len() || index < other.len()).then_some(index)
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
            self.skipped += 1;
        }
        self.trail.step(entry.hash);
        self.entries.push_back(entry);
    }
}

/// Writes a [`Chronicle`] while a run happens. Hand it over as [`Witness`], and
/// [take](Chronicler::take) the chronicle when the run is over.
#[derive(Default)]
pub struct Chronicler {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    chronicle: Chronicle,
    hash: Rolling,
}

impl Chronicler {
    /// One that has seen nothing yet.
    pub fn new() -> Rc<Chronicler> {
        Rc::default()
    }

    /// What was written so far.
    pub fn take(&self) -> Chronicle {
        self.state.take().chronicle
    }

    fn write(&self, at_ns: u64, who: Who, class: Class, about: About, line: String) {
        let state = &mut *self.state.borrow_mut();
        state.hash.fold(at_ns);
        state.hash.write(line.as_bytes());
        let hash = state.hash.finish();
        let About { ids, peek, worker } = about;
        state.chronicle.push(Entry { at_ns, who, class, ids, peek, worker, line, hash });
    }

    /// Something happened that is no entry, but must not differ between two runs either.
    fn fold(&self, at_ns: u64, words: [u64; 2]) {
        let hash = &mut self.state.borrow_mut().hash;
        hash.fold(at_ns);
        words.into_iter().for_each(|word| hash.fold(word));
    }
}

/// Whom an entry is about.
#[derive(Default)]
pub(super) struct About {
    pub(super) ids: Vec<GlobalId>,
    pub(super) peek: Option<PeekId>,
    pub(super) worker: Option<usize>,
}

impl About {
    pub(super) fn id(id: GlobalId) -> About {
        About { ids: vec![id], ..About::default() }
    }

    pub(super) fn peek(peek: PeekId) -> About {
        About { peek: Some(peek), ..About::default() }
    }

    pub(super) fn part(part: &PartName) -> About {
        About::id(part.id).on(part.worker)
    }

    pub(super) fn on(self, worker: usize) -> About {
        About { worker: Some(worker), ..self }
    }

    pub(super) fn by(self, peek: Option<PeekId>) -> About {
        About { peek, ..self }
    }
}

impl Observer for Chronicler {
    fn event(&self, now_ns: u64, thread: ThreadId, event: &Event) {
        match words::event(event) {
            Some((class, about, line)) => {
                self.write(now_ns, Who::Thread(thread), class, about, line);
            }
            None => {
                self.state.borrow_mut().hash.fold_event(event);
                self.fold(now_ns, [thread.0, 0]);
            }
        }
    }

    fn begin(&self, now_ns: u64, thread: ThreadId, activity: Activity) {
        let (about, line) = match activity {
            Activity::Compact(Some(part)) => {
                let line = format!("begins compacting {}", words::part(&part));
                (About::part(&part), line)
            }
            Activity::Walk(peek) => (About::peek(peek), format!("walks for {peek}")),
            _ => return,
        };
        self.write(now_ns, Who::Thread(thread), Class::Work, about, line);
    }

    fn switch(&self, now_ns: u64, from: ThreadId, to: ThreadId) {
        self.fold(now_ns, [from.0, to.0]);
    }

    fn blocked(&self, now_ns: u64, blocked: &Blocked) {
        let Blocked { waiter, lock, holder, holder_activities } = blocked;
        let holder = match holder {
            Some(holder) => self.state.borrow().chronicle.name(Who::Thread(*holder)).to_string(),
            None => "nobody known".to_string(),
        };
        let activities = nested(holder_activities);
        let line = format!("waits for the lock of a {lock}, held by {holder} in {activities}");
        self.write(now_ns, Who::Thread(*waiter), Class::Work, About::default(), line);
    }

    fn unblocked(&self, now_ns: u64, thread: ThreadId, lock: &'static str, waited_ns: u64) {
        let line = format!("may take the lock of a {lock} after {} us", waited_ns / 1_000);
        self.write(now_ns, Who::Thread(thread), Class::Work, About::default(), line);
    }

    fn stalled(&self, now_ns: u64, thread: ThreadId, stall_ns: u64) {
        let line = format!("is stalled for {} us", stall_ns / 1_000);
        self.write(now_ns, Who::Thread(thread), Class::Fault, About::default(), line);
    }

    fn ended(&self, now_ns: u64, thread: ThreadId) {
        self.fold(now_ns, [thread.0, 1]);
    }
}

impl Witness for Chronicler {
    fn fact(&self, now_ns: u64, fact: &Fact<'_>) {
        if let Fact::Thread { name, .. } = fact {
            self.state.borrow_mut().chronicle.threads.push(name.to_string());
        }
        let at_ns = match fact {
            Fact::Violated(violation) => violation.at_ns,
            _ => now_ns,
        };
        if let Some((who, class, about, line)) = words::fact(fact) {
            self.write(at_ns, who, class, about, line);
        }
    }
}
