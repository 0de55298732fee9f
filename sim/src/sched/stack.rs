//! Stacks for coroutines, kept for the next run.
//!
//! Mapping a stack and faulting its pages in costs more than a short run; a sweep makes hundreds of
//! thousands of threads, all with stacks of one size.

use std::cell::RefCell;

use corosensei::stack::DefaultStack;

/// So many stacks are kept on each OS thread.
const KEPT: usize = 64;

thread_local! {
    static POOL: RefCell<Vec<(usize, DefaultStack)>> = const { RefCell::new(Vec::new()) };
}

/// A stack of `size` bytes and a guard page.
///
/// # Panics
/// If the operating system refuses the memory.
pub(super) fn take(size: usize) -> DefaultStack {
    let kept = POOL.with_borrow_mut(|pool| {
        let index = pool.iter().rposition(|(kept, _)| *kept == size)?;
        Some(pool.swap_remove(index).1)
    });
    kept.unwrap_or_else(|| {
        DefaultStack::new(size)
            .unwrap_or_else(|error| panic!("no memory for a stack of {size} bytes: {error}"))
    })
}

/// Keeps a stack of `size` bytes for the next [`take`].
pub(super) fn give(size: usize, stack: DefaultStack) {
    // At the end of the OS thread the pool may be gone: the stack is unmapped then.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if pool.len() < KEPT {
            pool.push((size, stack));
        }
    });
}
