//! The scheduler: coroutines for threads, on the machine's decisions.
//!
//! A thread is a coroutine on its own stack. At a point the running thread asks the machine who
//! runs next, on its own stack; if that is itself, nothing else happens. Otherwise it names the
//! next one and suspends, and the loop in [`Scheduler::run_until`] resumes that one. The machine is
//! never borrowed across a switch, nor while an observer is called.
//!
//! While a thread unwinds, whether by a panic or because it is killed, nothing may run but its
//! destructors: the OS thread counts panics, and other threads would think that they panic too. So
//! points do nothing then, and a lock that is taken is freed by unwinding its holder as well.

use std::any::Any;
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use tandem::env::{self, Activity, Event, LockKey, Point, Surroundings};

use super::choice::Source;
use super::cost::Kind;
use super::log::Log;
use super::machine::{MAX_THREADS, Machine, ThreadYielder, Wait, bits};
use super::observe::{Blocked, Observer};
use super::{Config, DRIVER, Deadlock, Outcome, Panicked, ThreadId, Whom, panics, stack};

type Body = Coroutine<(), (), (), DefaultStack>;

/// Runs threads under a seeded schedule. See [the module](super).
///
/// All methods but those of [`Surroundings`] are for the driver: the code that is not a simulated
/// thread itself. Dropping it kills all threads.
pub struct Scheduler {
    core: Rc<Core>,
}

/// What the driver and the threads share.
struct Core {
    machine: RefCell<Machine>,
    bodies: Box<[RefCell<Option<Body>>; MAX_THREADS]>,
    observer: Rc<dyn Observer>,
    /// The panic that [`Scheduler::run_until`] shall return with.
    panicked: RefCell<Option<Panicked>>,
    /// Whom the thread that suspended last made the current one. A copy of the machine's, which the
    /// loop over all switches reads without a borrow.
    next: Cell<Option<usize>>,
    /// How many threads are being killed, one inside the other.
    kills: Cell<u32>,
}

impl Scheduler {
    /// A machine without threads at time zero.
    pub fn new(config: Config, source: Box<dyn Source>, observer: Rc<dyn Observer>) -> Self {
        panics::install_hook();
        let core = Core {
            machine: RefCell::new(Machine::new(config, source)),
            bodies: Box::new([const { RefCell::new(None) }; MAX_THREADS]),
            observer,
            panicked: RefCell::default(),
            next: Cell::new(None),
            kills: Cell::new(0),
        };
        Scheduler { core: Rc::new(core) }
    }

    /// Installs itself as the surroundings of the system on this OS thread, until the guard drops.
    ///
    /// # Panics
    /// If other surroundings are installed.
    pub fn install(&self) -> env::Installed {
        env::install(self.surroundings())
    }

    /// Installed while threads run or are torn down, whatever the driver keeps installed: a thread
    /// that waits for a simulated lock without would wait on the OS thread, for ever.
    fn installed(&self) -> Option<env::Installed> {
        (!env::listening()).then(|| self.install())
    }

    /// Itself as the surroundings of the system.
    pub fn surroundings(&self) -> Rc<dyn Surroundings> {
        self.core.clone()
    }

    /// A new thread that begins [now](Scheduler::now_ns).
    ///
    /// Groups are the driver's: say, one for each runtime. A thread may spawn threads, but must
    /// reach the scheduler through a `Weak`, or neither will ever be dropped.
    ///
    /// # Panics
    /// If 64 threads are alive, or there is no memory for a stack.
    pub fn spawn(&self, name: String, group: u32, body: impl FnOnce() + 'static) -> ThreadId {
        let now_ns = self.now_ns();
        self.spawn_at(now_ns, name, group, body)
    }

    /// A new thread that begins at `at_ns`. As [`Scheduler::spawn`] otherwise.
    ///
    /// # Panics
    /// If 64 threads are alive, or there is no memory for a stack.
    pub fn spawn_at(
        &self,
        at_ns: u64,
        name: String,
        group: u32,
        body: impl FnOnce() + 'static,
    ) -> ThreadId {
        let mut machine = self.core.machine.borrow_mut();
        let stack = stack::take(machine.config.stack_bytes);
        let (id, slot) = machine.add(name, group, at_ns);
        let core = Rc::clone(&self.core);
        let coroutine = Coroutine::with_stack(stack, move |yielder: &ThreadYielder, ()| {
            core.machine.borrow_mut().yielders[slot] = yielder;
            if let Err(payload) = panics::catch(body) {
                core.body_unwound(id, payload);
            }
        });
        *self.core.bodies[slot].borrow_mut() = Some(coroutine);
        id
    }

    /// Runs threads until none can run, or all that can are ahead of `limit_ns`.
    ///
    /// A thread that starts to run before the limit runs to its next point, so clocks may be a
    /// little past it afterwards.
    ///
    /// # Panics
    /// If called by a simulated thread.
    pub fn run_until(&self, limit_ns: u64) -> Outcome {
        let _installed = self.installed();
        let core = &*self.core;
        {
            let mut machine = core.machine.borrow_mut();
            assert!(machine.current.is_none(), "the machine runs already");
            machine.set_limit(limit_ns);
        }
        let mut next = core.choose(Kind::Resumed);
        let simulating = panics::set_simulating(true);
        while let Some(slot) = next {
            next = core.resume(slot);
        }
        panics::set_simulating(simulating);
        self.outcome()
    }

    fn outcome(&self) -> Outcome {
        if let Some(panicked) = self.core.panicked.take() {
            self.advance_to(panicked.at_ns);
            return Outcome::Panicked(panicked);
        }
        let mut machine = self.core.machine.borrow_mut();
        if let Some(at_ns) = machine.interrupted_ns.take() {
            machine.advance_to(at_ns);
            return Outcome::Interrupted { at_ns };
        }
        if let Some(next_ns) = machine.least_ns() {
            let limit_ns = machine.limit_ns();
            machine.advance_to(limit_ns);
            return Outcome::Limit { next_ns };
        }
        let latest_ns = machine.latest_ns;
        machine.advance_to(latest_ns);
        let blocked = machine.all_blocked();
        if machine.is_deadlock(&blocked) {
            return Outcome::Deadlock(Deadlock { blocked });
        }
        Outcome::Idle
    }

    /// Tells what time it is for the driver, in nanoseconds: what it does from now on, through the
    /// system's code too, happens then. Ignored if time is later already.
    pub fn advance_to(&self, now_ns: u64) {
        self.core.machine.borrow_mut().advance_to(now_ns);
    }

    /// Makes [`Scheduler::run_until`] return [`Outcome::Interrupted`] at the next point of the
    /// running thread, or at once. Unparking [`DRIVER`] does the same: a thread that has something
    /// for the driver uses that.
    pub fn interrupt(&self) {
        self.core.interrupt();
    }

    /// Wakes a thread at `at_ns`, or lets its next park return then. A thread that is gone is
    /// ignored.
    ///
    /// What it is woken for must be there for it to see already: if another wake comes earlier,
    /// this one is spent with it.
    pub fn unpark_at(&self, thread: ThreadId, at_ns: u64) {
        self.core.wake(thread, at_ns);
    }

    /// Stops the cores of threads for `stall_ns`, from `at_ns` or from their clocks if these are
    /// ahead of it.
    pub fn stall(&self, whom: Whom, at_ns: u64, stall_ns: u64) {
        let slots = self.core.machine.borrow().slots_of(whom);
        for slot in bits(slots) {
            let (from_ns, id) = {
                let mut machine = self.core.machine.borrow_mut();
                let from_ns = machine.clocks[slot].max(at_ns);
                machine.stall(slot, at_ns, stall_ns);
                (from_ns, machine.ids[slot])
            };
            self.core.observer.stalled(from_ns, id, stall_ns);
        }
    }

    /// Makes each merged update of threads that now live cost `factor` times what the cost model
    /// says; 1 is normal.
    pub fn set_slow(&self, whom: Whom, factor: u32) {
        let mut machine = self.core.machine.borrow_mut();
        for slot in bits(machine.slots_of(whom)) {
            machine.thread(slot).slow = factor;
        }
    }

    /// Ends threads where they are: their stacks are unwound, so that what they hold is dropped and
    /// their locks are released. Threads that are gone are ignored.
    ///
    /// A destructor that needs a lock whose holder is suspended unwinds that holder first, even if
    /// it is not in the list: threads that share locks share their fate. A body that catches
    /// unwinds must resume those it did not raise itself, or it will not end.
    ///
    /// # Panics
    /// If called by a simulated thread.
    pub fn kill(&self, threads: &[ThreadId]) {
        let _installed = self.installed();
        for thread in threads {
            let slot = {
                let machine = self.core.machine.borrow();
                assert!(machine.current.is_none(), "a simulated thread cannot kill {thread}");
                machine.slot(*thread)
            };
            if let Some(slot) = slot {
                self.core.unwind(slot);
            }
        }
    }

    /// The clock of the running thread; between runs, the time at which the last one ended, or that
    /// the driver [told](Scheduler::advance_to). In nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.core.machine.borrow().now_ns()
    }

    /// A thread's clock, in nanoseconds; `None` when it is gone.
    pub fn clock_ns(&self, thread: ThreadId) -> Option<u64> {
        let machine = self.core.machine.borrow();
        machine.slot(thread).map(|slot| machine.clocks[slot])
    }

    /// A thread's name; `None` when it is gone.
    pub fn name(&self, thread: ThreadId) -> Option<String> {
        let machine = self.core.machine.borrow();
        let slot = machine.slot(thread)?;
        machine.threads[slot].as_ref().map(|thread| thread.name.clone())
    }

    /// The living threads, oldest first.
    pub fn threads(&self) -> Vec<ThreadId> {
        let machine = self.core.machine.borrow();
        let mut threads: Vec<_> = bits(machine.live).map(|slot| machine.ids[slot]).collect();
        threads.sort();
        threads
    }

    /// Whether a thread lives and waits to be unparked.
    pub fn is_parked(&self, thread: ThreadId) -> bool {
        let machine = self.core.machine.borrow();
        let slot = machine.slot(thread);
        slot.and_then(|slot| machine.threads[slot].as_ref())
            .is_some_and(|thread| matches!(thread.wait, Wait::Unpark))
    }

    /// Everyone who waits for a lock now.
    pub fn blocked(&self) -> Vec<Blocked> {
        self.core.machine.borrow().all_blocked()
    }

    /// The decisions so far.
    pub fn log(&self) -> Log {
        self.core.machine.borrow().log.clone()
    }

    /// The decisions so far, as [`Recorded`](super::Recorded) takes them.
    pub fn decisions(&self) -> Vec<u32> {
        self.core.machine.borrow().log.decisions()
    }

    /// The number of decisions so far.
    pub fn decision_count(&self) -> u64 {
        self.core.machine.borrow().log.len()
    }

    /// The event hash so far.
    pub fn hash(&self) -> u64 {
        use std::hash::Hasher;
        self.core.machine.borrow().hash.finish()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.kill(&self.threads());
    }
}

impl Core {
    /// Lets the driver choose a thread to run, and shows it to the observer.
    fn choose(&self, kind: Kind) -> Option<usize> {
        let mut machine = self.machine.borrow_mut();
        let last = machine.last;
        let next = machine.decide(kind, last);
        let from = last.map_or(DRIVER, |last| machine.ids[last]);
        let to = next.map(|slot| (machine.clocks[slot], machine.ids[slot]));
        machine.last = next.or(last);
        drop(machine);
        self.tell_stalls();
        if let Some((now_ns, to)) = to.filter(|(_, to)| *to != from) {
            self.observer.switch(now_ns, from, to);
        }
        self.machine.borrow_mut().current = next;
        next
    }

    /// Runs the thread in `slot`, which is the current one, until it suspends or ends; says who is
    /// the current one then.
    ///
    /// After a switch, the processor's guess at where a function returns to is wrong: the fewer
    /// functions lie between the switch and the code around it, the better. So this, what switches
    /// back and the lock itself are inlined.
    #[inline(always)]
    fn resume(&self, slot: usize) -> Option<usize> {
        let result = {
            let mut body = self.bodies[slot].borrow_mut();
            body.as_mut().expect("a slot in use has its body").resume(())
        };
        match result {
            CoroutineResult::Yield(()) => self.next.get(),
            CoroutineResult::Return(()) => {
                self.machine.borrow_mut().current = None;
                let simulating = panics::set_simulating(false);
                self.bury(slot);
                let panicked = self.panicked.borrow().is_some();
                let next = if panicked { None } else { self.choose(Kind::Ended) };
                panics::set_simulating(simulating);
                next
            }
        }
    }

    /// Removes a thread whose body is done or was unwound.
    fn bury(&self, slot: usize) {
        let body = self.bodies[slot].borrow_mut().take();
        let (now_ns, id, stack_bytes) = {
            let mut machine = self.machine.borrow_mut();
            let facts = (machine.clocks[slot], machine.ids[slot], machine.config.stack_bytes);
            machine.remove(slot);
            facts
        };
        if let Some(body) = body {
            stack::give(stack_bytes, body.into_stack());
        }
        self.observer.ended(now_ns, id);
    }

    /// The body of a thread panicked, or is being killed.
    fn body_unwound(&self, thread: ThreadId, payload: Box<dyn Any + Send>) {
        if self.kills.get() > 0 {
            // The unwinding is corosensei's, which wants it back.
            std::panic::resume_unwind(payload);
        }
        let message = panics::message(&*payload);
        let machine = self.machine.borrow();
        let slot = machine.slot(thread).expect("a thread that runs is alive");
        let name = machine.threads[slot].as_ref().map(|thread| thread.name.clone());
        let at_ns = machine.clocks[slot];
        drop(machine);
        let name = name.unwrap_or_default();
        self.panicked.replace(Some(Panicked { thread, name, at_ns, message }));
    }

    /// Unwinds the thread in `slot`, which is not running, and removes it. May happen inside the
    /// unwinding of another.
    fn unwind(&self, slot: usize) {
        let outer = self.machine.borrow_mut().current.replace(slot);
        self.kills.set(self.kills.get() + 1);
        let simulating = panics::set_simulating(true);
        {
            let mut body = self.bodies[slot].borrow_mut();
            body.as_mut().expect("a slot in use has its body").force_unwind();
        }
        panics::set_simulating(simulating);
        self.kills.set(self.kills.get() - 1);
        self.machine.borrow_mut().current = outer;
        self.bury(slot);
    }

    /// Whether the calling code runs while a thread is torn down, so that nothing may switch.
    #[inline]
    fn unwinding(&self) -> bool {
        self.kills.get() > 0 || std::thread::panicking()
    }

    /// Suspends the thread in `slot` in favour of `next`, which is the current one from here on, or
    /// of the driver.
    #[inline(always)]
    fn switch(&self, mut machine: RefMut<'_, Machine>, slot: usize, next: Option<usize>) {
        let yielder = machine.yielders[slot];
        machine.current = next;
        self.next.set(next);
        if let Some(next) = next {
            let (now_ns, from, to) = (machine.clocks[next], machine.ids[slot], machine.ids[next]);
            machine.last = Some(next);
            drop(machine);
            // Whoever was stalled may be the next to run, and is to be heard of in the order of its clock.
            self.tell_stalls();
            self.observer.switch(now_ns, from, to);
        } else {
            drop(machine);
            self.tell_stalls();
        }
        // SAFETY: `slot` was the current thread until just now, so this code runs on that thread's
        // stack, at whose root its yielder lives for as long as the coroutine runs. The pointer was
        // set from that yielder when the coroutine was entered, and is cleared only when the thread
        // is removed.
        unsafe { (*yielder).suspend(()) };
    }

    /// Tells the observer of the stalls that the last decision asked for.
    #[inline]
    fn tell_stalls(&self) {
        if !self.machine.borrow().stalled.is_empty() {
            let stalled = std::mem::take(&mut self.machine.borrow_mut().stalled);
            for (now_ns, thread, stall_ns) in stalled {
                self.observer.stalled(now_ns, thread, stall_ns);
            }
        }
    }

    fn wake(&self, thread: ThreadId, at_ns: u64) {
        let mut machine = self.machine.borrow_mut();
        let Some(slot) = machine.slot(thread) else { return };
        if machine.wake(slot, at_ns) {
            let (by, runs_ns) = (machine.running(), machine.clocks[slot]);
            drop(machine);
            self.observer.woken(at_ns, by, thread, runs_ns);
        }
    }

    fn interrupt(&self) {
        let mut machine = self.machine.borrow_mut();
        let now_ns = machine.now_ns();
        machine.interrupted_ns.get_or_insert(now_ns);
    }

    /// A taken lock where nobody may wait for it.
    #[cold]
    fn blocked_while_unwinding(&self, lock: LockKey) {
        let holder = {
            let machine = self.machine.borrow();
            machine.holder(lock).and_then(|holder| machine.slot(holder))
        };
        match holder {
            Some(slot) if self.bodies[slot].try_borrow_mut().is_ok() => self.unwind(slot),
            _ => {
                // A panic inside a destructor aborts before its message is seen in a report.
                eprintln!("the lock {:?} is taken while {}", lock.name, self.holding(lock));
                panic!("the lock {:?} is taken while a thread unwinds", lock.name);
            }
        }
    }

    /// The driver wants a lock that a suspended thread holds: that thread runs, and nobody else, until
    /// it has released it. There is nothing to decide, so nothing is recorded.
    #[cold]
    fn driver_blocked(&self, lock: LockKey) {
        while self.machine.borrow().holder(lock).is_some() {
            let slot = {
                let mut machine = self.machine.borrow_mut();
                let releaser = machine.releaser(lock).filter(|_| self.panicked.borrow().is_none());
                machine.awaited = releaser.map(|slot| (slot, lock));
                machine.current = releaser;
                releaser
            };
            let Some(slot) = slot else {
                panic!(
                    "the driver wants the lock {:?} for ever: {}",
                    lock.name,
                    self.holding(lock)
                );
            };
            let simulating = panics::set_simulating(true);
            let next = self.resume(slot);
            panics::set_simulating(simulating);
            let mut machine = self.machine.borrow_mut();
            debug_assert!(next.is_none(), "only the awaited thread runs");
            (machine.awaited, machine.current) = (None, None);
        }
    }

    fn holding(&self, lock: LockKey) -> String {
        match self.machine.borrow().holder(lock) {
            None => "nobody is known to hold it".to_string(),
            Some(holder) => format!("{holder} holds it"),
        }
    }
}

impl Surroundings for Core {
    #[inline]
    fn point(&self, point: Point) {
        if self.unwinding() {
            return;
        }
        let mut machine = self.machine.borrow_mut();
        let Some(slot) = machine.current else { return };
        let slow = match point {
            Point::Merge { .. } => machine.thread(slot).slow,
            _ => 1,
        };
        let (kind, cost_ns) = machine.config.costs.of(&point, slow);
        machine.charge(slot, cost_ns);
        let next = machine.decide(kind, Some(slot));
        if !machine.stalled.is_empty() {
            drop(machine);
            self.tell_stalls();
            machine = self.machine.borrow_mut();
        }
        if next != Some(slot) {
            self.switch(machine, slot, next);
        }
    }

    fn begin(&self, activity: Activity) {
        let mut machine = self.machine.borrow_mut();
        let (now_ns, id) = (machine.now_ns(), machine.running());
        if let Some(slot) = machine.current {
            let cost_ns = machine.config.costs.of_activity(activity);
            machine.charge(slot, cost_ns);
            machine.thread(slot).activities.push(activity);
        }
        drop(machine);
        self.observer.begin(now_ns, id, activity);
    }

    fn end(&self, activity: Activity) {
        let mut machine = self.machine.borrow_mut();
        let (now_ns, id) = (machine.now_ns(), machine.running());
        if let Some(slot) = machine.current {
            machine.thread(slot).activities.pop();
        }
        drop(machine);
        self.observer.end(now_ns, id, activity);
    }

    fn event(&self, event: Event) {
        let mut machine = self.machine.borrow_mut();
        let (now_ns, id) = (machine.now_ns(), machine.running());
        machine.hash.fold(id.0);
        machine.hash.fold(now_ns);
        machine.hash.fold_event(&event);
        drop(machine);
        self.observer.event(now_ns, id, &event);
    }

    fn current(&self) -> u64 {
        self.machine.borrow().running().0
    }

    fn park(&self) {
        if self.unwinding() {
            return;
        }
        let mut machine = self.machine.borrow_mut();
        let slot = machine.current.expect("the driver of a simulation cannot park");
        let (now_ns, id) = (machine.clocks[slot], machine.ids[slot]);
        let token = machine.sleep(slot);
        if machine.ready & 1 << slot == 0 {
            drop(machine);
            self.observer.parked(now_ns, id);
            machine = self.machine.borrow_mut();
        } else if machine.clocks[slot] == now_ns {
            return;
        } else if let Some((token_ns, by)) = token {
            // The wake came early in the order of things, but its time is still ahead.
            let runs_ns = machine.clocks[slot];
            drop(machine);
            self.observer.parked(now_ns, id);
            self.observer.woken(token_ns, by, id, runs_ns);
            machine = self.machine.borrow_mut();
        }
        let next = machine.decide(Kind::Parked, None);
        if next != Some(slot) {
            self.switch(machine, slot, next);
        } else {
            drop(machine);
        }
        self.machine.borrow_mut().thread(slot).wait = Wait::Nothing;
        self.tell_stalls();
    }

    fn unpark(&self, thread: u64) {
        if ThreadId(thread) == DRIVER {
            return self.interrupt();
        }
        let now_ns = self.machine.borrow().now_ns();
        self.wake(ThreadId(thread), now_ns);
    }

    fn blocked(&self, lock: LockKey) {
        if self.unwinding() {
            return self.blocked_while_unwinding(lock);
        }
        let mut machine = self.machine.borrow_mut();
        let Some(slot) = machine.current else {
            drop(machine);
            return self.driver_blocked(lock);
        };
        let blocked = machine.block(slot, lock);
        let now_ns = machine.clocks[slot];
        drop(machine);
        self.observer.blocked(now_ns, &blocked);
        let mut machine = self.machine.borrow_mut();
        let next = machine.decide(Kind::Blocked, None);
        self.switch(machine, slot, next);
    }

    #[inline]
    fn locked(&self, lock: LockKey) {
        self.machine.borrow_mut().locked(lock);
    }

    #[inline]
    fn unlocked(&self, lock: LockKey) {
        let unblocked = self.machine.borrow_mut().unlocked(lock);
        for slot in bits(unblocked) {
            let machine = self.machine.borrow();
            let (now_ns, id) = (machine.clocks[slot], machine.ids[slot]);
            let since_ns = machine.threads[slot].as_ref().map_or(now_ns, |it| it.waits_since_ns);
            drop(machine);
            self.observer.unblocked(now_ns, id, lock.name, now_ns.saturating_sub(since_ns));
        }
    }
}
