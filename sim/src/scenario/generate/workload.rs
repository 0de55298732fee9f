//! The operations of a scenario.
//!
//! The generator keeps count of what would exist if everything it drew were carried out at once. That
//! count only steers the draw (not to drop what is not there, to bound how much is maintained); no
//! operation relies on it.

use tandem::repr::Datum;

use super::data::Feed;
use super::expressions::{columns, finishing};
use super::plans::{Readable, shape};
use crate::scenario::draw::Draw;
use crate::scenario::{
    Cancel, IndexSpec, KeyChoice, Operation, Pick, PlanShape, Profile, SourceSpec, Swarm, Timed,
    When,
};

/// The most indexes that live at once, as far as the generator knows.
const LIVE_MAX: usize = 8;

pub(super) fn draw(
    seed: u64,
    profile: Profile,
    swarm: Swarm,
    sources: &[SourceSpec],
) -> Vec<Timed> {
    let mut workload = Workload {
        draw: Draw::new(seed, "workload"),
        data: Draw::new(seed, "data"),
        swarm,
        updates_max: if profile == Profile::Soak { 12 } else { 6 },
        feeds: sources.iter().map(|spec| Feed::new(*spec)).collect(),
        keys_max: sources.iter().map(|spec| spec.keys as u64).max().unwrap_or(1),
        live: 0,
        dropped: 0,
        operations: Vec::new(),
    };
    workload.prologue();
    while workload.operations.len() < profile.operations() {
        workload.next();
    }
    workload.operations.truncate(profile.operations());
    workload.operations
}

struct Workload {
    draw: Draw,
    data: Draw,
    swarm: Swarm,
    /// The most changes of one tick.
    updates_max: u64,
    feeds: Vec<Feed>,
    /// The largest key range of any source.
    keys_max: u64,
    live: usize,
    dropped: usize,
    operations: Vec<Timed>,
}

/// What the workload does next: an operation, or several that belong together.
#[derive(Clone, Copy)]
enum Move {
    Tick,
    Advance,
    Create,
    Peek,
    Query,
    Drop,
    Recreate,
    SetLag,
    /// Reads of an index in the instant of its creation.
    CreateAndRead,
    /// A drop while reads wait, one of them just cancelled.
    DropUnderReaders,
    /// A drop and the creation of its successor in one instant.
    DropAndRecreate,
}

impl Workload {
    /// Some data, and an index of each source.
    fn prologue(&mut self) {
        for source in 0..self.feeds.len() {
            self.tick_of(source);
            let (over, lag) = (PlanShape::Get(Pick::Nth(source)), self.lag());
            self.create(IndexSpec { over, key: vec![0], lag });
        }
    }

    fn next(&mut self) {
        let Swarm { queries, drops, lags, bursts, cancels, .. } = self.swarm;
        let when = |condition: bool, weight: u32| if condition { weight } else { 0 };
        let room = self.live < LIVE_MAX;
        let enough = self.live > 2;
        let next = self.draw.weighted(&[
            (330, Move::Tick),
            (40, Move::Advance),
            (when(room, 45), Move::Create),
            (320, Move::Peek),
            (when(queries, 70), Move::Query),
            (when(drops && enough, 30), Move::Drop),
            (when(drops && room && self.dropped > 0, 25), Move::Recreate),
            (when(lags, 40), Move::SetLag),
            (when(bursts && room, 20), Move::CreateAndRead),
            (when(drops && bursts && cancels && enough, 15), Move::DropUnderReaders),
            (when(drops && bursts && enough, 12), Move::DropAndRecreate),
        ]);
        self.carry_out(next);
    }

    fn carry_out(&mut self, next: Move) {
        match next {
            Move::Tick => {
                let source = self.source();
                self.tick_of(source);
            }
            Move::Advance => self.advance(),
            Move::Create => {
                let spec = self.spec();
                self.create(spec);
            }
            Move::Peek => {
                let index = self.index();
                let (when, cancel) = self.read();
                self.peek(index, when, cancel);
            }
            Move::Query => self.query(None),
            Move::Drop => {
                let index = self.index();
                self.drop_of(index);
            }
            Move::Recreate => self.recreate(),
            Move::SetLag => {
                let collection = self.all().pick(&mut self.draw);
                let lag = if self.draw.percent(40) { 0 } else { self.lag() };
                self.push(Operation::SetLag { collection, lag });
            }
            Move::CreateAndRead => {
                let spec = self.spec();
                self.create(spec);
                for _ in 0..self.draw.within(1, 3) {
                    let (when, cancel) = self.read();
                    match self.swarm.queries && self.draw.percent(40) {
                        true => self.query(Some(Pick::Newest)),
                        false => self.peek(Pick::Newest, when, cancel),
                    }
                    self.at_once();
                }
            }
            Move::DropUnderReaders => self.drop_under_readers(),
            Move::DropAndRecreate => {
                let index = self.index();
                self.drop_of(index);
                self.recreate();
                self.at_once();
            }
        }
    }

    fn drop_under_readers(&mut self) {
        let index = Pick::Nth(self.draw.index(self.live));
        for _ in 0..self.draw.within(0, 2) {
            let (when, cancel) = self.read();
            self.peek(index, when, cancel);
        }
        let when = self.draw.one(&[When::Upper, When::Ahead(2), When::UpperMinusOne]);
        let after_ns = if self.draw.percent(60) { 0 } else { self.draw.magnitude(1_000, 100_000) };
        self.peek(index, when, Some(Cancel { after_ns, then_compact: true }));
        self.drop_of(index);
        if self.draw.percent(50) {
            self.at_once();
        }
    }

    /// Adds an operation after a gap.
    fn push(&mut self, operation: Operation) {
        let gap_ns = match self.draw.below(100) {
            0..10 if self.swarm.bursts => 0,
            0..45 => self.draw.magnitude(1_000, 20_000),
            45..88 => self.draw.magnitude(20_000, 200_000),
            _ => self.draw.magnitude(200_000, 2_000_000),
        };
        self.operations.push(Timed { gap_ns, operation });
    }

    /// Moves the last operation to the instant of the one before.
    fn at_once(&mut self) {
        if let Some(last) = self.operations.last_mut() {
            last.gap_ns = 0;
        }
    }

    /// Mostly the source that is furthest behind: whatever joins them waits for it.
    fn source(&mut self) -> usize {
        if self.draw.percent(55) {
            return self.draw.index(self.feeds.len());
        }
        let behind = self.feeds.iter().enumerate().min_by_key(|(_, feed)| feed.upper);
        behind.map_or(0, |(source, _)| source)
    }

    fn tick_of(&mut self, source: usize) {
        let updates = self.feeds[source].tick(&mut self.data, &self.swarm, self.updates_max);
        self.push(Operation::Tick { source, updates });
    }

    /// Catches a source up with the others, or goes ahead of them; now and then far.
    fn advance(&mut self) {
        let source = self.source();
        let most = self.feeds.iter().map(|feed| feed.upper).max().unwrap_or(0);
        let by = match most - self.feeds[source].upper {
            0 => self.draw.weighted(&[(45, 1), (30, 2), (20, 5), (5, 40)]),
            behind => behind,
        };
        self.feeds[source].upper += by;
        self.push(Operation::Advance { source, by });
    }

    fn lag(&mut self) -> u64 {
        super::draw_lag(&mut self.draw, self.swarm.aggressive)
    }

    /// What plans of indexes read.
    fn all(&self) -> Readable {
        Readable { favoured: self.feeds.len(), len: self.feeds.len() + self.live }
    }

    /// A live index.
    fn index(&mut self) -> Pick {
        Readable { favoured: self.live, len: self.live }.pick(&mut self.draw)
    }

    fn spec(&mut self) -> IndexSpec {
        let readable = self.all();
        let over = shape(&mut self.draw, &self.swarm, readable);
        IndexSpec { over, key: self.key(), lag: self.lag() }
    }

    /// The key of an index: often the first column, as then reads by key find something.
    fn key(&mut self) -> Vec<usize> {
        if self.draw.percent(50) { vec![0] } else { columns(&mut self.draw, 1, 2) }
    }

    fn create(&mut self, spec: IndexSpec) {
        self.live += 1;
        self.push(Operation::CreateIndex { spec });
    }

    fn drop_of(&mut self, index: Pick) {
        self.live = self.live.saturating_sub(1);
        self.dropped += 1;
        self.push(Operation::Drop { index });
    }

    fn recreate(&mut self) {
        let index = Readable { favoured: self.dropped, len: self.dropped }.pick(&mut self.draw);
        self.live += 1;
        self.dropped = self.dropped.saturating_sub(1);
        self.push(Operation::Recreate { index });
    }

    fn peek(&mut self, index: Pick, when: When, cancel: Option<Cancel>) {
        let keys = self.keys();
        let finishing = finishing(&mut self.draw);
        self.push(Operation::Peek { index, when, keys, finishing, cancel });
    }

    /// A query, of this index if one is given.
    fn query(&mut self, of: Option<Pick>) {
        let readable = Readable { favoured: self.live, len: self.live };
        let plan = match of {
            Some(pick) if self.draw.percent(50) => PlanShape::Get(pick),
            Some(pick) => PlanShape::Distinct { input: Box::new(PlanShape::Get(pick)) },
            None => shape(&mut self.draw, &self.swarm, readable),
        };
        let key = self.key();
        let finishing = finishing(&mut self.draw);
        let (when, cancel) = match self.read() {
            // The output of a query at the last of all times would be no bounded read.
            (When::Last, cancel) => (When::Ahead(3), cancel),
            other => other,
        };
        self.push(Operation::Query { plan, key, when, finishing, cancel });
    }

    /// When a read reads, and whether it is cancelled.
    fn read(&mut self) -> (When, Option<Cancel>) {
        let Swarm { ahead, cancels, .. } = self.swarm;
        let by = self.draw.within(1, 5);
        let ahead = u32::from(ahead);
        let when = self.draw.weighted(&[
            (22, When::Since),
            (30, When::UpperMinusOne),
            (14 * ahead, When::Upper),
            (18, When::Within(by)),
            (9 * ahead, When::Ahead(by)),
            (2, When::BelowSince(by)),
            (2 * ahead * u32::from(cancels), When::Last),
        ]);
        let cancelled = cancels && (when == When::Last || self.draw.percent(28));
        (when, cancelled.then(|| self.cancel()))
    }

    fn cancel(&mut self) -> Cancel {
        let after_ns =
            if self.draw.percent(35) { 0 } else { self.draw.magnitude(1_000, 3_000_000) };
        Cancel { after_ns, then_compact: self.draw.percent(55) }
    }

    /// All rows, or a few keys: the hot one, ordinary ones, and one that is never there.
    fn keys(&mut self) -> KeyChoice {
        if self.draw.percent(50) {
            return KeyChoice::All;
        }
        let absent = -7i64;
        let count = self.draw.within(1, 3);
        let mut datum = || {
            Datum::Int(match self.draw.below(100) {
                0..40 => 1,
                40..48 => absent,
                _ => self.draw.within(1, self.keys_max) as i64,
            })
        };
        KeyChoice::Values((0..count).map(|_| vec![datum(), datum()]).collect())
    }
}
