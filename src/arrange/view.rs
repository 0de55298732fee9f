//! What a reader sees of an arrangement: one immutable value.
//!
//! A [`View`] is derived whole, from one source, and swapped in whole. Its chain, its `since` and
//! its `upper` therefore always belong together (H2): whoever holds a view can judge once whether a
//! read is possible, and then needs nothing from its owner any more. What the owner compacts or
//! merges afterwards makes other batches; the view keeps its own.
//!
//! Whether a read is possible is decided here and nowhere else, on [`Bounds`]. An index has two
//! halves, which are judged [together](Bounds::both): accurate from the later `since` on, complete
//! up to the earlier `upper`.

use std::fmt::Debug;
use std::sync::Arc;

use differential_dataflow::lattice::Lattice;
use differential_dataflow::trace::TraceReader;
use timely::PartialOrder;
use timely::progress::Antichain;

use super::batch::{ArcBatch, SharedData, SharedDiff, SharedTime};
use super::spine::{ArcAgent, ArcSpan};
use crate::planted;

/// Whether an arrangement stands behind a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// A publisher maintains the arrangement.
    Live,
    /// No publisher has attached yet: readers wait.
    Unbacked,
    /// The publisher has gone: nobody can read any more.
    Closed,
}

/// What a read needs to know of one or several views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds<T> {
    /// The state furthest from readable.
    pub state: State,
    /// From where on accumulations are accurate.
    pub since: Antichain<T>,
    /// Up to where the contents are complete.
    pub upper: Antichain<T>,
}

/// What a reader wants.
#[derive(Clone, Copy, Debug)]
pub enum Read<'a, T> {
    /// The contents at one time.
    At(&'a T),
    /// The changes from one frontier to another.
    Between {
        /// The first readable times.
        as_of: &'a Antichain<T>,
        /// The times at which the read may stop.
        until: &'a Antichain<T>,
    },
}

/// Whether a read is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement<T: Debug> {
    /// Now.
    Ready,
    /// Later, perhaps.
    NotYet,
    /// Never.
    Refused(Refused<T>),
}

/// Why a read will never be possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused<T: Debug> {
    /// Compaction has passed the read.
    #[error("cannot read as of {}: compacted up to {}", show(.as_of), show(.since))]
    Compacted {
        /// The first time the read needs.
        as_of: Antichain<T>,
        /// From where on accumulations are accurate.
        since: Antichain<T>,
    },
    /// The arrangement was dropped.
    #[error("cannot read as of {}: the arrangement was dropped", show(.as_of))]
    Closed {
        /// The first time the read needs.
        as_of: Antichain<T>,
    },
}

/// A frontier as people read it.
pub(super) fn show<T: Debug>(frontier: &Antichain<T>) -> String {
    let times: Vec<_> = frontier.elements().iter().map(|time| format!("{time:?}")).collect();
    format!("{{{}}}", times.join(", "))
}

impl<T: SharedTime> Bounds<T> {
    /// The bounds of what is read from two arrangements together.
    pub fn both(&self, other: &Self) -> Self {
        Bounds {
            state: self.state.max(other.state),
            since: self.since.join(&other.since),
            upper: self.upper.meet(&other.upper),
        }
    }

    /// The bounds of what is read from several arrangements together; none for none.
    pub fn together(parts: impl IntoIterator<Item = Self>) -> Option<Self> {
        parts.into_iter().reduce(|all, part| all.both(&part))
    }

    /// Whether `read` is possible within these bounds.
    pub fn judge(&self, read: Read<'_, T>) -> Judgement<T> {
        let (accurate, complete) = match read {
            Read::At(time) => {
                (planted!(NoSinceGate) || self.since.less_equal(time), !self.upper.less_equal(time))
            }
            Read::Between { as_of, until } => (
                PartialOrder::less_equal(&self.since, as_of),
                PartialOrder::less_equal(until, &self.upper),
            ),
        };
        match self.state {
            State::Closed => Judgement::Refused(Refused::Closed { as_of: read.first() }),
            _ if !accurate => Judgement::Refused(Refused::Compacted {
                as_of: read.first(),
                since: self.since.clone(),
            }),
            // An unbacked view is incomplete everywhere; its state is looked at all the same, for a
            // time at the minimum.
            State::Live if complete => Judgement::Ready,
            State::Live | State::Unbacked => Judgement::NotYet,
        }
    }
}

impl<T: SharedTime> Read<'_, T> {
    fn first(&self) -> Antichain<T> {
        match self {
            Read::At(time) => Antichain::from_elem((*time).clone()),
            Read::Between { as_of, .. } => (*as_of).clone(),
        }
    }
}

/// How many spans successive views share or copy together.
const CHUNK: usize = 4;

type Chunk<K, V, T, R> = Arc<[ArcSpan<K, V, T, R>]>;

/// The immutable state of one arrangement, as its readers see it.
///
/// It shares the arrangement's batches. Whoever drops the last view that holds a batch pays for
/// freeing it.
pub struct View<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> {
    /// All chunks but the last hold [`CHUNK`] spans. Successive views share those that stayed: most
    /// rounds change only the latest spans, and a chain can be long while merges are under way.
    chunks: Vec<Chunk<K, V, T, R>>,
    spans: usize,
    bounds: Bounds<T>,
}

impl<K: SharedData, V: SharedData, T: SharedTime, R: SharedDiff> View<K, V, T, R> {
    /// The view of a point that has no publisher yet: nothing is complete (H4), everything may
    /// become readable.
    pub fn unbacked() -> Self {
        let minimum = Antichain::from_elem(T::minimum());
        View {
            chunks: Vec::new(),
            spans: 0,
            bounds: Bounds { state: State::Unbacked, since: minimum.clone(), upper: minimum },
        }
    }

    /// The view of a point whose publisher has gone. It holds no batches, and its frontiers are
    /// empty.
    pub fn closed() -> Self {
        let (since, upper) = (Antichain::new(), Antichain::new());
        let bounds = Bounds { state: State::Closed, since, upper };
        View { chunks: Vec::new(), spans: 0, bounds }
    }

    /// The view of a trace, all of it taken from the one handle.
    ///
    /// It is accurate from `floor` on, or from wherever the handle or a span of the trace says, if
    /// that is later.
    pub fn of_trace(agent: &mut ArcAgent<K, V, T, R>, floor: &Antichain<T>) -> Self {
        let derived = View::unbacked().successor(agent, floor);
        derived.expect("a live view differs from an unbacked one")
    }

    /// As [`View::of_trace`], sharing with this view what stayed the same; nothing when all did.
    pub fn successor(
        &self,
        agent: &mut ArcAgent<K, V, T, R>,
        floor: &Antichain<T>,
    ) -> Option<Self> {
        let mut since = floor.join(&agent.get_logical_compaction().to_owned());
        let (mut same, mut spans) = (0, 0);
        let mut upper = Antichain::from_elem(T::minimum());
        agent.map_spans(|span| {
            if same == spans && same < self.spans && same_span(self.span(same), span) {
                same += 1;
            } else {
                since = since.join(span.desc.since());
            }
            spans += 1;
            upper.clone_from(span.upper());
        });
        let stayed = same == spans && same == self.spans;
        if stayed && since == self.bounds.since && self.bounds.state == State::Live {
            return None;
        }

        let kept = if stayed { self.chunks.len() } else { same / CHUNK };
        let mut chunks = Vec::with_capacity(spans.div_ceil(CHUNK));
        chunks.extend(self.chunks[..kept].iter().map(Arc::clone));
        let (mut position, mut chunk) = (0, Vec::new());
        agent.map_spans(|span| {
            if position >= kept * CHUNK {
                chunk.push(span.clone());
                if chunk.len() == CHUNK {
                    chunks.push(Arc::from(std::mem::take(&mut chunk)));
                }
            }
            position += 1;
        });
        if !chunk.is_empty() {
            chunks.push(Arc::from(chunk));
        }
        Some(View { chunks, spans, bounds: Bounds { state: State::Live, since, upper } })
    }

    fn span(&self, position: usize) -> &ArcSpan<K, V, T, R> {
        &self.chunks[position / CHUNK][position % CHUNK]
    }

    /// Its spans, contiguous and in order, those without updates included.
    pub fn chain(&self) -> impl ExactSizeIterator<Item = &ArcSpan<K, V, T, R>> {
        (0..self.spans).map(|position| self.span(position))
    }

    /// Its batches, in order.
    pub fn batches(&self) -> impl Iterator<Item = &ArcBatch<K, V, T, R>> {
        self.chain().filter_map(|span| span.inner.as_ref())
    }

    /// Everything a read is judged by.
    pub fn bounds(&self) -> &Bounds<T> {
        &self.bounds
    }

    /// From where on it is accurate.
    pub fn since(&self) -> &Antichain<T> {
        &self.bounds.since
    }

    /// Up to where it is complete.
    pub fn upper(&self) -> &Antichain<T> {
        &self.bounds.upper
    }

    /// Whether an arrangement stands behind it.
    pub fn state(&self) -> State {
        self.bounds.state
    }

    /// Whether `read` is possible from this view alone.
    pub fn judge(&self, read: Read<'_, T>) -> Judgement<T> {
        self.bounds.judge(read)
    }
}

fn same_span<K, V, T, R>(left: &ArcSpan<K, V, T, R>, right: &ArcSpan<K, V, T, R>) -> bool
where
    K: SharedData,
    V: SharedData,
    T: SharedTime,
    R: SharedDiff,
{
    let same_batch = match (&left.inner, &right.inner) {
        (Some(left), Some(right)) => left.same_updates(right),
        (None, None) => true,
        _ => false,
    };
    // A span is described anew only when it is merged with a neighbour, which moves a bound.
    same_batch && left.lower() == right.lower() && left.upper() == right.upper()
}

#[cfg(test)]
mod tests {
    use super::super::testing::at;
    use super::*;

    fn live(since: u64, upper: Antichain<u64>) -> Bounds<u64> {
        Bounds { state: State::Live, since: at(since), upper }
    }

    #[test]
    fn a_time_is_readable_from_since_on_and_before_upper() {
        let bounds = live(3, at(7));
        for time in [3, 5, 6] {
            assert_eq!(bounds.judge(Read::At(&time)), Judgement::Ready, "{time}");
        }
        for time in [7, 8, u64::MAX] {
            assert_eq!(bounds.judge(Read::At(&time)), Judgement::NotYet, "{time}");
        }
        for time in [0, 2] {
            let refused = Refused::Compacted { as_of: at(time), since: at(3) };
            assert_eq!(bounds.judge(Read::At(&time)), Judgement::Refused(refused), "{time}");
        }
        let ended = live(3, Antichain::new());
        assert_eq!(ended.judge(Read::At(&u64::MAX)), Judgement::Ready);
    }

    #[test]
    fn an_interval_is_readable_when_it_lies_between_since_and_upper() {
        let judge = |as_of, until| {
            live(3, at(7)).judge(Read::Between { as_of: &at(as_of), until: &at(until) })
        };
        assert_eq!(judge(3, 7), Judgement::Ready);
        assert_eq!(judge(3, 8), Judgement::NotYet);
        assert!(matches!(judge(2, 7), Judgement::Refused(Refused::Compacted { .. })));
        assert!(matches!(judge(2, 9), Judgement::Refused(Refused::Compacted { .. })));
    }

    #[test]
    fn nothing_is_readable_before_a_publisher_comes_nor_after_it_has_gone() {
        let unbacked = View::<u64, u64, u64, i64>::unbacked();
        assert_eq!(unbacked.upper(), &at(0), "not the empty frontier, which is complete");
        for time in [0, 1, u64::MAX] {
            assert_eq!(unbacked.judge(Read::At(&time)), Judgement::NotYet);
            let closed = View::<u64, u64, u64, i64>::closed().judge(Read::At(&time));
            assert_eq!(closed, Judgement::Refused(Refused::Closed { as_of: at(time) }));
        }
    }

    #[test]
    fn halves_are_judged_by_the_later_since_and_the_earlier_upper() {
        let both = live(3, at(9)).both(&live(5, at(7)));
        assert_eq!(both, live(5, at(7)));
        let unbacked = View::<u64, u64, u64, i64>::unbacked().bounds().clone();
        let half = both.both(&unbacked);
        assert_eq!(half.judge(Read::At(&6)), Judgement::NotYet);
        assert!(matches!(half.judge(Read::At(&4)), Judgement::Refused(_)));
        let closed = View::<u64, u64, u64, i64>::closed().bounds().clone();
        let closed = Bounds::together([half, closed]).expect("two parts");
        assert_eq!(
            closed.judge(Read::At(&6)),
            Judgement::Refused(Refused::Closed { as_of: at(6) })
        );
    }
}
