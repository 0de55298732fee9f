//! Hands every fact of a run to the oracles, the counters and the story.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tandem::env::{Activity, Event, Role};
use tandem::protocol::PeekId;
use tandem::repr::{Frontier, GlobalId};

use super::now_ns;
use super::witness::{Fact, Witness};
use crate::oracle::isolation::Party;
use crate::oracle::memory::MemoryOracle;
use crate::oracle::once::OnceOracle;
use crate::oracle::pins::PinOracle;
use crate::oracle::reads::ReadOracle;
use crate::oracle::sometimes::Sometimes;
use crate::oracle::{Asked, Reads, Verdict, isolation};
use crate::report::{Oracle, RunReport, Violation};
use crate::scenario::{Fault, Operation};
use crate::sched::{Blocked, Deadlock, Observer, ThreadId};

/// Everything that watches a run.
pub(super) struct Judge {
    threads: RefCell<Vec<(String, Role)>>,
    verdict: RefCell<Verdict>,
    reads: RefCell<Reads>,
    once: RefCell<OnceOracle>,
    pins: RefCell<PinOracle>,
    captures: RefCell<ReadOracle>,
    memory: RefCell<MemoryOracle>,
    sometimes: RefCell<Sometimes>,
    exercised: RefCell<BTreeMap<&'static str, u64>>,
    witness: Option<Rc<dyn Witness>>,
    told_violation: Cell<bool>,
    over: Cell<bool>,
}

impl Judge {
    pub(super) fn new(witness: Option<Rc<dyn Witness>>) -> Judge {
        let kinds = Operation::KINDS.iter().chain(&Fault::KINDS);
        Judge {
            threads: RefCell::default(),
            verdict: RefCell::default(),
            reads: RefCell::default(),
            once: RefCell::default(),
            pins: RefCell::default(),
            captures: RefCell::default(),
            memory: RefCell::default(),
            sometimes: RefCell::new(Sometimes::default()),
            exercised: RefCell::new(kinds.map(|kind| (*kind, 0)).collect()),
            witness,
            told_violation: Cell::new(false),
            over: Cell::new(false),
        }
    }

    /// Tells the witness, if there is one.
    pub(super) fn fact(&self, fact: &Fact<'_>) {
        if let Some(witness) = &self.witness {
            witness.fact(now_ns(), fact);
        }
    }

    /// Introduces a thread of the machine.
    pub(super) fn thread(&self, id: u64, name: String, role: Role, process: usize) {
        self.fact(&Fact::Thread { id: ThreadId(id), name: &name, role, process });
        let mut threads = self.threads.borrow_mut();
        assert_eq!(threads.len() as u64, id, "threads are introduced in order");
        threads.push((name, role));
    }

    /// Counts something that was done.
    pub(super) fn exercised(&self, what: &'static str) {
        *self.exercised.borrow_mut().entry(what).or_default() += 1;
    }

    /// Counts a situation that only the client can see.
    pub(super) fn sometimes(&self, situation: &'static str) {
        self.sometimes.borrow_mut().count(situation);
    }

    pub(super) fn violated(&self, oracle: Oracle, at_ns: u64, message: String) {
        self.found(Violation::new(oracle, at_ns, message));
    }

    pub(super) fn found(&self, violation: Violation) {
        self.verdict.borrow_mut().found(violation);
        self.tell_violation();
    }

    /// Nobody can go on: who waits for what, held by whom.
    pub(super) fn deadlocked(&self, at_ns: u64, deadlock: &Deadlock) {
        let waits = deadlock.blocked.iter().map(|blocked| {
            let holder = blocked.holder.map_or("nobody known".to_string(), |id| self.name(id));
            format!(
                "{} waits for the lock of a {}, held by {holder} in {:?}",
                self.name(blocked.waiter),
                blocked.lock,
                blocked.holder_activities
            )
        });
        let message = format!("deadlock: {}", waits.collect::<Vec<_>>().join("; "));
        let violation = Violation::new(Oracle::O7, at_ns, message).class("deadlock");
        let waiters = deadlock.blocked.iter();
        let violation = waiters.fold(violation, |all, blocked| all.of_thread(blocked.waiter));
        self.found(violation);
    }

    /// Tells the witness of the violation, once.
    fn tell_violation(&self) {
        let verdict = self.verdict.borrow();
        if let Some(violation) = verdict.violation()
            && !self.told_violation.replace(true)
        {
            self.fact(&Fact::Violated(violation));
        }
    }

    pub(super) fn checked(&self, oracle: Oracle) {
        self.verdict.borrow_mut().checked(oracle);
    }

    /// Whether some oracle has fired.
    pub(super) fn failed(&self) -> bool {
        self.verdict.borrow().violation().is_some()
    }

    /// The client asked for a read.
    pub(super) fn asked(&self, peek: PeekId, asked: Asked) {
        let Asked { target, reads, at, .. } = &asked;
        self.fact(&Fact::Asked { peek, target: *target, reads, at: *at });
        self.once.borrow_mut().asked(peek);
        self.reads.borrow_mut().insert(peek, asked);
    }

    /// The controller gave up on a read. Whether it was still unanswered.
    pub(super) fn gave_up(&self, peek: PeekId) -> bool {
        let mut reads = self.reads.borrow_mut();
        let read = reads.get_mut(&peek).expect("only what was asked is cancelled");
        read.given_up |= !read.answered;
        !read.answered
    }

    /// The controller got the answer of a read. Gives what had been asked.
    pub(super) fn responded(&self, peek: PeekId) -> Option<Asked> {
        self.once.borrow_mut().responded(now_ns(), peek, &mut self.verdict.borrow_mut());
        let mut reads = self.reads.borrow_mut();
        let read = reads.get_mut(&peek)?;
        read.answered = true;
        Some(read.clone())
    }

    /// What was asked under this name.
    pub(super) fn asked_of(&self, peek: PeekId) -> Option<Asked> {
        self.reads.borrow().get(&peek).cloned()
    }

    /// Where oracles of the client's record what they find.
    pub(super) fn verdict(&self) -> std::cell::RefMut<'_, Verdict> {
        self.verdict.borrow_mut()
    }

    /// Whether some worker refused its part of a read.
    pub(super) fn was_refused(&self, peek: PeekId) -> bool {
        self.captures.borrow().was_refused(peek)
    }

    /// The peeks without a response.
    pub(super) fn unanswered(&self) -> Vec<PeekId> {
        self.once.borrow().missing()
    }

    /// The upper of every trace of an index, by worker and half.
    pub(super) fn trace_uppers(&self, id: GlobalId) -> Vec<(tandem::env::PartName, Frontier)> {
        self.pins.borrow().uppers(id)
    }

    /// How far each worker has been allowed to compact an index.
    pub(super) fn trace_allowances(&self, id: GlobalId) -> Vec<(usize, Frontier)> {
        let pins = self.pins.borrow();
        pins.allowed(id).map(|(worker, frontier)| (worker, frontier.clone())).collect()
    }

    /// What holds back traces, now that nothing else is to happen.
    pub(super) fn restless(&self) -> Vec<Violation> {
        self.checked(Oracle::O3);
        self.pins.borrow().restless(now_ns())
    }

    /// All threads are gone: what follows is no fact of the system.
    pub(super) fn ended(&self) {
        self.over.set(true);
    }

    /// How many batches live.
    pub(super) fn live_batches(&self) -> i64 {
        self.memory.borrow().live()
    }

    pub(super) fn check_memory(&self, at_ns: u64) {
        let failed = self.failed();
        let mut verdict = self.verdict.borrow_mut();
        // A run that was cut short by a panic may have torn down what it should not have.
        if !failed {
            self.memory.borrow().after_the_end(at_ns, &mut verdict);
        }
    }

    /// What the run came to.
    pub(super) fn report(
        &self,
        seed: u64,
        shape: (usize, usize),
        virtual_ns: u64,
        decisions: u64,
        hash: u64,
    ) -> RunReport {
        let verdict = self.verdict.borrow();
        RunReport {
            seed,
            violation: verdict.violation().cloned(),
            decisions,
            virtual_ns,
            hash,
            sometimes: self.sometimes.borrow().counts().clone(),
            exercised: self.exercised.borrow().clone(),
            checks: verdict.checks().clone(),
            shape,
        }
    }

    fn name(&self, thread: ThreadId) -> String {
        match self.threads.borrow().get(thread.0 as usize) {
            Some((name, _)) => name.clone(),
            None => "driver".to_string(),
        }
    }

    fn role(&self, thread: ThreadId) -> Option<Role> {
        self.threads.borrow().get(thread.0 as usize).map(|(_, role)| *role)
    }

    fn judge_event(&self, now: u64, event: &Event) {
        let (reads, verdict) = (&*self.reads.borrow(), &mut *self.verdict.borrow_mut());
        match event {
            Event::Rejected { role, message } => {
                let message = format!("{role:?} rejected a command: {message}");
                verdict.found(Violation::new(Oracle::O8, now, message).class("rejected"));
            }
            Event::CommandApplied { .. } => verdict.checked(Oracle::O8),
            _ => {}
        }
        self.pins.borrow_mut().event(now, event, verdict);
        self.captures.borrow_mut().event(now, event, reads, verdict);
    }
}

impl Observer for Judge {
    fn event(&self, now: u64, thread: ThreadId, event: &Event) {
        self.memory.borrow_mut().event(event);
        if self.over.get() {
            return;
        }
        self.judge_event(now, event);
        self.sometimes.borrow_mut().event(thread.0, event, &self.reads.borrow());
        if let Some(witness) = &self.witness {
            witness.event(now, thread, event);
        }
        self.tell_violation();
    }

    fn begin(&self, now: u64, thread: ThreadId, activity: Activity) {
        if let Some(witness) = &self.witness {
            witness.begin(now, thread, activity);
        }
        self.sometimes.borrow_mut().begin(thread.0, activity);
    }

    fn end(&self, now: u64, thread: ThreadId, activity: Activity) {
        if let Some(witness) = &self.witness {
            witness.end(now, thread, activity);
        }
        self.sometimes.borrow_mut().end(thread.0, activity);
    }

    fn switch(&self, now: u64, from: ThreadId, to: ThreadId) {
        if let Some(witness) = &self.witness {
            witness.switch(now, from, to);
        }
        self.sometimes.borrow_mut().switch(from.0);
    }

    fn parked(&self, now: u64, thread: ThreadId) {
        if let Some(witness) = &self.witness {
            witness.parked(now, thread);
        }
    }

    fn woken(&self, now: u64, by: ThreadId, thread: ThreadId, runs_ns: u64) {
        if let Some(witness) = &self.witness {
            witness.woken(now, by, thread, runs_ns);
        }
    }

    fn unblocked(&self, now: u64, thread: ThreadId, lock: &'static str, waited_ns: u64) {
        if let Some(witness) = &self.witness {
            witness.unblocked(now, thread, lock, waited_ns);
        }
    }

    fn ended(&self, now: u64, thread: ThreadId) {
        if let Some(witness) = &self.witness {
            witness.ended(now, thread);
        }
    }

    fn blocked(&self, now: u64, blocked: &Blocked) {
        if let Some(witness) = &self.witness {
            witness.blocked(now, blocked);
        }
        let (waiter, holder) = (blocked.waiter, blocked.holder);
        let Some(waiter_role) = self.role(waiter) else { return };
        self.sometimes(match waiter_role {
            Role::Interactive => "interactive blocked on a lock",
            _ => "maintenance blocked on a lock",
        });
        if let Some((holder, holder_role)) =
            holder.and_then(|holder| Some((holder, self.role(holder)?)))
        {
            let (waiter_name, holder_name) = (self.name(waiter), self.name(holder));
            isolation::blocked(
                now,
                Party { thread: waiter, name: &waiter_name, role: waiter_role },
                blocked.lock,
                Party { thread: holder, name: &holder_name, role: holder_role },
                &blocked.holder_activities,
                &mut self.verdict.borrow_mut(),
            );
        }
        self.tell_violation();
    }

    fn stalled(&self, now: u64, thread: ThreadId, stall_ns: u64) {
        if let Some(witness) = &self.witness {
            witness.stalled(now, thread, stall_ns);
        }
    }
}
