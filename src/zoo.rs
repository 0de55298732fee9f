//! Planted defects: known ways to break the system, put back on purpose, so that the testbed can show that its oracles
//! fire.
//!
//! A defect is planted for the calling OS thread, which in a simulation carries the whole system. The code that would be
//! wrong asks [`planted!`](crate::planted), which is the constant `false` without the `zoo` feature.

/// Whether the named [`Defect`](crate::zoo::Defect) is planted; the constant `false` without the `zoo` feature.
#[macro_export]
macro_rules! planted {
    ($defect:ident) => {{
        #[cfg(feature = "zoo")]
        let planted = $crate::zoo::planted($crate::zoo::Defect::$defect);
        #[cfg(not(feature = "zoo"))]
        let planted = false;
        planted
    }};
}

#[cfg(feature = "zoo")]
pub use defects::*;

#[cfg(feature = "zoo")]
mod defects {
    use std::cell::Cell;

    /// A known way to break the system.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Defect {
        /// `frozen-publisher` (H1): the publisher's own trace handle stays at its first since, so that merely
        /// publishing an index keeps all its history. Any index, no fault at all. Seen by O3.
        FrozenPublisher,
        /// `no-since-gate` (H3): a snapshot waits for `upper` and ignores `since`, so that a read below `since` answers
        /// with coalesced data. A read the controller gave up on, after a merge. Seen by O2.
        NoSinceGate,
        /// `placeholder-overwritten` (H11): a publication replaces the point that a reader created instead of adopting
        /// it, so that this reader waits for ever. Reader first. Seen by O7.
        PlaceholderOverwritten,
        /// `merge-under-lock` (H7): physical compaction runs while the point is locked, so that a reader that
        /// registers waits for a merge. Slow merge, concurrent read. Seen by O10.
        MergeUnderLock,
        /// `cancel-twice` (H13): a cancelled peek is answered at once and again when its workers are done. Seen by O4.
        CancelTwice,
    }

    impl Defect {
        /// Every defect.
        pub const ALL: [Defect; 5] = [
            Defect::FrozenPublisher,
            Defect::NoSinceGate,
            Defect::PlaceholderOverwritten,
            Defect::MergeUnderLock,
            Defect::CancelTwice,
        ];

        /// The name by which it is planted.
        pub fn name(self) -> &'static str {
            match self {
                Defect::FrozenPublisher => "frozen-publisher",
                Defect::NoSinceGate => "no-since-gate",
                Defect::PlaceholderOverwritten => "placeholder-overwritten",
                Defect::MergeUnderLock => "merge-under-lock",
                Defect::CancelTwice => "cancel-twice",
            }
        }

        /// The defect of this name.
        pub fn from_name(name: &str) -> Option<Defect> {
            Defect::ALL.into_iter().find(|defect| defect.name() == name)
        }

        /// The oracle that must see it.
        pub fn oracle(self) -> &'static str {
            match self {
                Defect::FrozenPublisher => "O3",
                Defect::NoSinceGate => "O2",
                Defect::PlaceholderOverwritten => "O7",
                Defect::MergeUnderLock => "O10",
                Defect::CancelTwice => "O4",
            }
        }

        /// What goes wrong, in one sentence.
        pub fn summary(self) -> &'static str {
            match self {
                Defect::FrozenPublisher => {
                    "the publisher's own trace handle never advances: publishing keeps all history"
                }
                Defect::NoSinceGate => {
                    "a snapshot ignores since: reads below it answer with coalesced data"
                }
                Defect::PlaceholderOverwritten => {
                    "publication replaces a reader's point instead of adopting it"
                }
                Defect::MergeUnderLock => "physical compaction runs while the point is locked",
                Defect::CancelTwice => "a cancelled peek is answered at once, and again when done",
            }
        }
    }

    thread_local! {
        static PLANTED: Cell<Option<Defect>> = const { Cell::new(None) };
    }

    /// Plants `defect`, or none, for the calling OS thread.
    pub fn plant(defect: Option<Defect>) {
        PLANTED.set(defect);
    }

    /// Whether `defect` is planted on the calling OS thread.
    pub fn planted(defect: Defect) -> bool {
        PLANTED.get() == Some(defect)
    }
}
