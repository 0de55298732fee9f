//! A mutex that tells the surroundings what it does.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use super::{LockKey, Point, Surroundings, surroundings};

/// A mutual exclusion lock, without poisoning: a panic ends the process anyway.
///
/// On threads this is a [`parking_lot::Mutex`] and one look at a thread-local. In a simulation, taking and releasing it
/// are preemption points and a blocked thread yields.
#[derive(Debug)]
pub struct Mutex<T> {
    name: &'static str,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock around `value`; `name` says what it protects.
    pub fn new(name: &'static str, value: T) -> Self {
        Mutex { name, inner: parking_lot::Mutex::new(value) }
    }

    fn key(&self) -> LockKey {
        LockKey { name: self.name, address: std::ptr::from_ref(&self.inner).addr() }
    }

    /// Takes the lock, waiting for whoever holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let Some(surroundings) = surroundings() else {
            return MutexGuard { inner: Some(self.inner.lock()), report: None };
        };
        surroundings.point(Point::Lock(self.name));
        let key = self.key();
        loop {
            if let Some(guard) = self.inner.try_lock() {
                surroundings.locked(key);
                let guard = MutexGuard { inner: Some(guard), report: Some((surroundings, key)) };
                if let Some((surroundings, key)) = &guard.report {
                    surroundings.point(Point::Locked(key.name));
                }
                return guard;
            }
            surroundings.blocked(key);
        }
    }
}

/// Holds a lock until dropped.
pub struct MutexGuard<'a, T> {
    inner: Option<parking_lot::MutexGuard<'a, T>>,
    report: Option<(Rc<dyn Surroundings>, LockKey)>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_deref().expect("present until dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_deref_mut().expect("present until dropped")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        drop(self.inner.take());
        if let Some((surroundings, key)) = self.report.take() {
            surroundings.unlocked(key);
            if !std::thread::panicking() {
                surroundings.point(Point::Unlocked(key.name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_surroundings_it_is_a_plain_lock() {
        let lock = Mutex::new("counter", 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 4000);
    }
}
