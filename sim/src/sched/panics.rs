//! Panics of simulated threads: kept for the report instead of printed.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a simulated thread runs on this OS thread.
    static SIMULATING: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic of a simulated thread was raised.
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Tells the hook whether a simulated thread runs on this OS thread from now on; returns what was.
#[inline]
pub(super) fn set_simulating(simulating: bool) -> bool {
    SIMULATING.replace(simulating)
}

/// Installs, once per process, a panic hook that is silent about simulated threads and hands
/// everything else to the hook that was there.
pub(super) fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if SIMULATING.try_with(Cell::get).unwrap_or(false) {
                let location = info.location().map(ToString::to_string);
                let _ = LOCATION.try_with(|slot| slot.replace(location));
            } else {
                before(info);
            }
        }));
    });
}

/// Runs the body of a simulated thread. A panic comes back as its payload.
pub(super) fn catch(body: impl FnOnce()) -> Result<(), Box<dyn Any + Send>> {
    panic::catch_unwind(AssertUnwindSafe(body))
}

/// What a panic said, and where.
pub(super) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text");
    match LOCATION.take() {
        Some(location) => format!("{text}, at {location}"),
        None => text.to_string(),
    }
}
