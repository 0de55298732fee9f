//! The simulated machine without its coroutines: clocks, who waits for what, and the decision.
//!
//! Threads live in at most 64 slots, so that "who may run" is one word. What a decision reads lies
//! in arrays indexed by slot; the rest of a thread is in [`Thread`].

use corosensei::Yielder;
use tandem::env::{Activity, LockKey};

use super::choice::{Choice, STALLS, STALLS_NS, Source};
use super::cost::Kind;
use super::hash::Rolling;
use super::log::Log;
use super::observe::Blocked;
use super::{Config, DRIVER, ThreadId, Whom};

/// So many threads can live at once.
pub(super) const MAX_THREADS: usize = 64;

/// The set bits of a word, lowest first.
#[inline]
pub(super) fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (word != 0).then_some(word.trailing_zeros() as usize % MAX_THREADS)?;
        word &= word - 1;
        Some(slot)
    })
}

/// The `index`-th set bit of a word, counted from the lowest, which is number zero.
///
/// Sixty-four slots are possible, but few runs use more than eight: for those this is one look
/// into a table, where a loop would be mispredicted half of the time.
#[inline]
pub(super) fn nth_bit(word: u64, index: u32) -> usize {
    if word < 256 && index < 8 {
        usize::from(NTH_BIT[word as usize][index as usize])
    } else {
        bits(word).nth(index as usize).unwrap_or(0)
    }
}

static NTH_BIT: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut word = 0;
    while word < 256 {
        let (mut bit, mut index) = (0, 0);
        while bit < 8 {
            if word & 1 << bit != 0 {
                table[word][index] = bit as u8;
                index += 1;
            }
            bit += 1;
        }
        word += 1;
    }
    table
};

/// What a coroutine suspends itself with.
pub(super) type ThreadYielder = Yielder<(), ()>;

/// What is seldom looked at of a thread.
pub(super) struct Thread {
    pub name: String,
    pub activities: Vec<Activity>,
    /// How many times dearer its merges are.
    pub slow: u32,
    pub wait: Wait,
    /// An unpark that came while it was awake: when, and whose.
    pub token: Option<(u64, ThreadId)>,
    /// Its clock when it last began to wait, stalls since included.
    pub waits_since_ns: u64,
}

/// Whether a thread waits, and for what.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    Nothing,
    /// It was woken and has not run since: an earlier wake may still move its clock back.
    Woken,
    Unpark,
    Lock(LockKey),
}

/// A lock and its holder.
struct Held {
    address: usize,
    holder: ThreadId,
}

pub(super) struct Machine {
    pub config: Config,
    source: Box<dyn Source>,
    pub log: Log,
    pub hash: Rolling,

    pub ids: [ThreadId; MAX_THREADS],
    pub groups: [u32; MAX_THREADS],
    pub clocks: [u64; MAX_THREADS],
    pub yielders: [*const ThreadYielder; MAX_THREADS],
    pub threads: [Option<Box<Thread>>; MAX_THREADS],
    /// The slot of each thread ever spawned, or [`GONE`].
    slots: Vec<u8>,
    pub live: u64,
    pub ready: u64,
    blocked: u64,
    held: Vec<Held>,

    /// The slot that runs.
    pub current: Option<usize>,
    /// The slot that ran last, if it could go on.
    pub last: Option<usize>,
    /// No thread runs that is ahead of this.
    limit_ns: u64,
    /// The driver is to be told something before anything else runs.
    pub interrupted_ns: Option<u64>,
    /// The thread that alone may run, and the lock that the driver waits for it to release.
    pub awaited: Option<(usize, LockKey)>,
    /// The latest time at which a thread began to wait or ended.
    pub latest_ns: u64,
    /// The driver's clock.
    driver_ns: u64,
    /// If not zero: all ready threads may run, and still may when their clocks are up to this.
    /// What is done at almost every point (charging, locking) keeps it up to date, and all other
    /// changes to clocks or readiness reset it.
    all_may_run_to_ns: u64,
    /// The number of ready threads, while that is not zero.
    ready_count: u32,
    /// Stalls that decisions asked for and the observer was not told yet.
    pub stalled: Vec<(u64, ThreadId, u64)>,
}

const GONE: u8 = u8::MAX;

impl Machine {
    pub fn new(config: Config, source: Box<dyn Source>) -> Self {
        Machine {
            config,
            source,
            log: Log::new(),
            hash: Rolling::new(),
            ids: [DRIVER; MAX_THREADS],
            groups: [0; MAX_THREADS],
            clocks: [0; MAX_THREADS],
            yielders: [std::ptr::null(); MAX_THREADS],
            threads: [const { None }; MAX_THREADS],
            slots: Vec::new(),
            live: 0,
            ready: 0,
            blocked: 0,
            held: Vec::new(),
            current: None,
            last: None,
            limit_ns: 0,
            interrupted_ns: None,
            awaited: None,
            latest_ns: 0,
            driver_ns: 0,
            all_may_run_to_ns: 0,
            ready_count: 0,
            stalled: Vec::new(),
        }
    }

    /// A slot for a new thread.
    pub fn add(&mut self, name: String, group: u32, at_ns: u64) -> (ThreadId, usize) {
        self.all_may_run_to_ns = 0;
        let slot = (!self.live).trailing_zeros() as usize;
        assert!(slot < MAX_THREADS, "more than {MAX_THREADS} simulated threads at once");
        let id = ThreadId(self.slots.len() as u64);
        self.slots.push(slot as u8);
        self.ids[slot] = id;
        self.groups[slot] = group;
        self.clocks[slot] = at_ns;
        self.threads[slot] = Some(Box::new(Thread {
            name,
            activities: Vec::new(),
            slow: 1,
            wait: Wait::Nothing,
            token: None,
            waits_since_ns: at_ns,
        }));
        self.live |= 1 << slot;
        self.ready |= 1 << slot;
        (id, slot)
    }

    /// Frees the slot of a thread that ended.
    pub fn remove(&mut self, slot: usize) {
        self.all_may_run_to_ns = 0;
        let id = self.ids[slot];
        self.latest_ns = self.latest_ns.max(self.clocks[slot]);
        self.slots[id.0 as usize] = GONE;
        self.threads[slot] = None;
        self.yielders[slot] = std::ptr::null();
        let others = !(1 << slot);
        self.live &= others;
        self.ready &= others;
        self.blocked &= others;
        self.last = self.last.filter(|last| *last != slot);
    }

    pub fn slot(&self, thread: ThreadId) -> Option<usize> {
        let slot = *self.slots.get(usize::try_from(thread.0).ok()?)?;
        (slot != GONE).then_some(usize::from(slot))
    }

    /// The living threads meant.
    pub fn slots_of(&self, whom: Whom) -> u64 {
        match whom {
            Whom::Thread(thread) => self.slot(thread).map_or(0, |slot| 1 << slot),
            Whom::Group(group) => bits(self.live)
                .filter(|slot| self.groups[*slot] == group)
                .fold(0, |slots, slot| slots | 1 << slot),
        }
    }

    pub fn thread(&mut self, slot: usize) -> &mut Thread {
        self.threads[slot].as_mut().expect("a slot in use has its thread")
    }

    /// What [`Machine::set_limit`] set.
    pub fn limit_ns(&self) -> u64 {
        self.limit_ns
    }

    /// The clock of the running thread; else the driver's.
    pub fn now_ns(&self) -> u64 {
        self.current.map_or(self.driver_ns, |slot| self.clocks[slot])
    }

    /// Advances the driver's clock.
    pub fn advance_to(&mut self, now_ns: u64) {
        self.driver_ns = self.driver_ns.max(now_ns);
    }

    /// The running thread, or the driver.
    pub fn running(&self) -> ThreadId {
        self.current.map_or(DRIVER, |slot| self.ids[slot])
    }

    /// The clock of the thread furthest behind that could run.
    pub fn least_ns(&self) -> Option<u64> {
        bits(self.ready).map(|slot| self.clocks[slot]).min()
    }

    /// No thread runs that is ahead of `limit_ns`, from now on.
    pub fn set_limit(&mut self, limit_ns: u64) {
        self.all_may_run_to_ns = 0;
        self.limit_ns = limit_ns;
    }

    /// Advances the clock of the running thread.
    #[inline]
    pub fn charge(&mut self, slot: usize, cost_ns: u64) {
        self.clocks[slot] = self.clocks[slot].saturating_add(cost_ns);
        if self.clocks[slot] > self.all_may_run_to_ns {
            self.all_may_run_to_ns = 0;
        }
    }

    /// Decides who runs: a slot, or none when everyone waits or is past the limit. `stay` is the
    /// slot that may simply go on.
    #[inline]
    pub fn decide(&mut self, kind: Kind, stay: Option<usize>) -> Option<usize> {
        if let Some((slot, lock)) = self.awaited {
            // No choice: the driver waits for this thread to release that lock.
            let goes_on = stay == Some(slot) && self.holder(lock).is_some();
            return stay.filter(|_| goes_on);
        }
        loop {
            if self.interrupted_ns.is_some() {
                return None;
            }
            let (calm, may_run, threads) = self.candidates(stay)?;
            let choice = Choice {
                kind,
                ids: &self.ids,
                groups: &self.groups,
                clocks: &self.clocks,
                calm,
                stay: stay == Some(calm),
                others: may_run & !(1 << calm),
                threads,
            };
            let options = choice.options();
            let mut value = self.source.next(&choice);
            if value >= options {
                value %= options;
            }
            self.log.push(value);
            let word = u64::from(value) | (kind as u64) << 16 | self.ids[calm].0 << 24;
            self.hash.fold(word);
            match value.checked_sub(choice.threads()) {
                None => return Some(choice.slot(value)),
                Some(stall) => {
                    let slot = choice.slot(stall / STALLS);
                    self.stall_by_decision(slot, STALLS_NS[(stall % STALLS) as usize]);
                }
            }
        }
    }

    /// The slot that the calm choice runs, and the slots that may run and their number: those that
    /// are ready, not past the limit, and not further ahead than the skew of the one furthest
    /// behind.
    #[inline]
    fn candidates(&mut self, stay: Option<usize>) -> Option<(usize, u64, u32)> {
        let (may_run, threads) = match self.all_may_run_to_ns {
            0 => self.may_run()?,
            _ => (self.ready, self.ready_count),
        };
        let calm = match stay {
            Some(slot) if may_run & 1 << slot != 0 => slot,
            _ => self.furthest_behind(may_run)?,
        };
        Some((calm, may_run, threads))
    }

    /// The slot among these whose clock is least, the lowest of several.
    #[inline]
    fn furthest_behind(&self, slots: u64) -> Option<usize> {
        let mut found = None;
        let mut least_ns = u64::MAX;
        for slot in bits(slots) {
            if self.clocks[slot] < least_ns || found.is_none() {
                (found, least_ns) = (Some(slot), self.clocks[slot]);
            }
        }
        found
    }

    /// The slots that may run and their number, looked up afresh.
    #[inline(never)]
    fn may_run(&mut self) -> Option<(u64, u32)> {
        let least_ns = self.least_ns().filter(|least_ns| *least_ns <= self.limit_ns)?;
        let horizon_ns = least_ns.saturating_add(self.config.skew_ns).min(self.limit_ns);
        let (mut may_run, mut threads) = (0, 0);
        for slot in bits(self.ready) {
            let may = self.clocks[slot] <= horizon_ns;
            may_run |= u64::from(may) << slot;
            threads += u32::from(may);
        }
        if may_run == self.ready {
            (self.all_may_run_to_ns, self.ready_count) = (horizon_ns, threads);
        }
        Some((may_run, threads))
    }

    #[cold]
    fn stall_by_decision(&mut self, slot: usize, stall_ns: u64) {
        let from_ns = self.clocks[slot];
        self.stall(slot, from_ns, stall_ns);
        self.stalled.push((from_ns, self.ids[slot], stall_ns));
    }

    /// Stops a thread's core from `at_ns`, or from its clock if that is later.
    pub fn stall(&mut self, slot: usize, at_ns: u64, stall_ns: u64) {
        self.all_may_run_to_ns = 0;
        self.clocks[slot] = self.clocks[slot].max(at_ns).saturating_add(stall_ns);
        let clock_ns = self.clocks[slot];
        // A wake that comes while it is stalled must not end the stall.
        self.thread(slot).waits_since_ns = clock_ns;
    }

    /// Puts a thread to sleep, unless a token lets it go on: the time of the wake that left it, and whose it was.
    pub fn sleep(&mut self, slot: usize) -> Option<(u64, ThreadId)> {
        self.all_may_run_to_ns = 0;
        let clock_ns = self.clocks[slot];
        self.latest_ns = self.latest_ns.max(clock_ns);
        let thread = self.thread(slot);
        thread.waits_since_ns = clock_ns;
        let token = thread.token.take();
        match token {
            None => {
                thread.wait = Wait::Unpark;
                self.ready &= !(1 << slot);
            }
            Some((token_ns, _)) => self.clocks[slot] = clock_ns.max(token_ns),
        }
        token
    }

    /// Wakes a sleeper at `at_ns`, or leaves a token. Of several wakes before it runs, the earliest
    /// counts: what each of them announces is already there to be seen. Whether a sleeper was woken by this.
    pub fn wake(&mut self, slot: usize, at_ns: u64) -> bool {
        self.all_may_run_to_ns = 0;
        let wake_ns = at_ns.saturating_add(self.config.costs.wake_ns);
        let by = self.running();
        let thread = self.thread(slot);
        let woken_ns = thread.waits_since_ns.max(wake_ns);
        match thread.wait {
            Wait::Unpark => {
                thread.wait = Wait::Woken;
                self.clocks[slot] = woken_ns;
                self.ready |= 1 << slot;
                true
            }
            Wait::Woken => {
                let earlier = woken_ns < self.clocks[slot];
                self.clocks[slot] = self.clocks[slot].min(woken_ns);
                earlier
            }
            Wait::Nothing | Wait::Lock(_) => {
                let earlier = thread.token.filter(|(token_ns, _)| *token_ns <= at_ns);
                thread.token = Some(earlier.unwrap_or((at_ns, by)));
                false
            }
        }
    }

    /// A thread waits for a lock.
    pub fn block(&mut self, slot: usize, lock: LockKey) -> Blocked {
        // Whoever may run still may without it.
        self.ready &= !(1 << slot);
        self.ready_count = self.ready_count.wrapping_sub(1);
        self.blocked |= 1 << slot;
        self.latest_ns = self.latest_ns.max(self.clocks[slot]);
        let clock_ns = self.clocks[slot];
        let thread = self.thread(slot);
        thread.wait = Wait::Lock(lock);
        thread.waits_since_ns = clock_ns;
        self.describe(slot, lock)
    }

    fn describe(&self, waiter: usize, lock: LockKey) -> Blocked {
        let holder = self.holder(lock);
        let holding = holder.and_then(|holder| self.slot(holder));
        let thread = holding.and_then(|slot| self.threads[slot].as_ref());
        Blocked {
            waiter: self.ids[waiter],
            lock: lock.name,
            holder,
            holder_activities: thread.map(|thread| thread.activities.clone()).unwrap_or_default(),
        }
    }

    pub fn holder(&self, lock: LockKey) -> Option<ThreadId> {
        self.held.iter().find(|held| held.address == lock.address).map(|held| held.holder)
    }

    /// The slot of the thread that must run for `lock` to be released: its holder, or whoever that
    /// waits for in turn.
    pub fn releaser(&self, mut lock: LockKey) -> Option<usize> {
        for _ in 0..MAX_THREADS {
            let slot = self.slot(self.holder(lock)?)?;
            match self.threads[slot].as_ref()?.wait {
                Wait::Lock(next) if self.holder(next).is_some() => lock = next,
                Wait::Unpark => return None,
                _ => return Some(slot),
            }
        }
        None
    }

    #[inline]
    pub fn locked(&mut self, lock: LockKey) {
        self.held.push(Held { address: lock.address, holder: self.running() });
    }

    /// Releases a lock and lets those try who wait for it: their slots.
    #[inline]
    pub fn unlocked(&mut self, lock: LockKey) -> u64 {
        if let Some(index) = self.held.iter().rposition(|held| held.address == lock.address) {
            self.held.swap_remove(index);
        }
        if self.blocked == 0 { 0 } else { self.unblock(lock) }
    }

    fn unblock(&mut self, lock: LockKey) -> u64 {
        let now_ns = self.now_ns();
        let mut unblocked = 0;
        for slot in bits(self.blocked) {
            let thread = self.thread(slot);
            match thread.wait {
                Wait::Lock(wanted) if wanted.address == lock.address => thread.wait = Wait::Nothing,
                _ => continue,
            }
            unblocked |= 1 << slot;
            self.clocks[slot] = self.clocks[slot].max(now_ns);
            // It is not behind whoever let it go, so it keeps nobody else from running.
            if self.current.is_none() || self.clocks[slot] > self.all_may_run_to_ns {
                self.all_may_run_to_ns = 0;
            }
            self.ready_count = self.ready_count.wrapping_add(1);
        }
        self.blocked &= !unblocked;
        self.ready |= unblocked;
        unblocked
    }

    /// Everyone who waits for a lock.
    pub fn all_blocked(&self) -> Vec<Blocked> {
        bits(self.blocked)
            .filter_map(|slot| match self.threads[slot].as_ref()?.wait {
                Wait::Lock(lock) => Some(self.describe(slot, lock)),
                _ => None,
            })
            .collect()
    }

    /// Whether the given waits can never end: some lead in a circle, or to a holder that is gone.
    pub fn is_deadlock(&self, blocked: &[Blocked]) -> bool {
        blocked.iter().any(|first| {
            let mut at = first;
            // After as many steps as there are waits, the walk is in a circle.
            for _ in 0..=blocked.len() {
                match at.holder {
                    Some(DRIVER) => return false,
                    None => return true,
                    Some(holder) if self.slot(holder).is_none() => return true,
                    Some(holder) => match blocked.iter().find(|next| next.waiter == holder) {
                        Some(next) => at = next,
                        None => return false,
                    },
                }
            }
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_loop_find_the_same_bits() {
        for word in 1..256_u64 {
            for index in 0..word.count_ones() {
                let found = nth_bit(word, index);
                assert_eq!(bits(word).nth(index as usize), Some(found));
                assert_eq!(nth_bit(word << 50, index), found + 50);
            }
        }
    }
}
