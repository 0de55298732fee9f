//! Stories: what happened in a run, in the words of the design, and what of it matters.
//!
//! A [`Chronicle`] is written by a witness while the run happens: one [`Entry`] for each fact, with
//! whom it concerns. Three readers want three things of it. A person wants the few entries that led
//! to a violation ([`chain`]). A replay wants to know where a run first differs from another one,
//! of which it has the entries themselves ([`Chronicle::first_difference`]) or only a [`Trail`] of
//! hashes that fits into a small file.

mod chain;
mod chronicle;
mod trail;
mod words;

pub use chain::{Line, chain, everything};
pub use chronicle::{Chronicle, Chronicler, Class, Entry, Who};
pub use trail::{MARKS_MAX, Trail};
