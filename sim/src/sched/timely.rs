//! Timely workers as simulated threads.
//!
//! Two things do not come by themselves. Allocators of one cluster wait for each other while they
//! are built ([`allocators`]). And when a worker sends to a peer, timely wakes the OS thread on
//! which the peer's allocator was built, which here is long gone: whoever runs the workers wakes
//! the peers instead, after each step that [did something](active).

use ::timely::CommunicationConfig;
use ::timely::communication::Allocator;
use ::timely::communication::allocator::AllocatorBuilder;
use ::timely::worker::Worker;

/// The connected allocators of a cluster of `peers` workers, in the order of their indexes.
///
/// Starts `peers` short-lived OS threads, because each allocator waits for all others while it is
/// built; so it must be called outside of a madsim runtime, which refuses to start threads.
///
/// # Panics
/// If `peers` is zero, or the operating system refuses a thread.
pub fn allocators(peers: usize) -> Vec<Allocator> {
    assert!(peers > 0, "a cluster has workers");
    let (builders, _guard) = CommunicationConfig::Process(peers)
        .try_build()
        .expect("a cluster of one process opens no sockets, so nothing can fail");
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            builders.into_iter().map(|builder| scope.spawn(move || build(builder))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("building an allocator does not panic").0)
            .collect()
    })
}

/// An allocator on its way from the thread that built it to the one that uses it.
struct Moved(Allocator);

// SAFETY: an allocator is not `Send` because of `Rc`s inside. All clones of these live in the same
// allocator, which is moved whole, once, right after it was built and before any channel was
// allocated; the thread that built it keeps nothing and ends. What else it holds (channel ends,
// thread handles, an `Arc<Mutex>`) is `Send`.
unsafe impl Send for Moved {}

fn build(builder: AllocatorBuilder) -> Moved {
    match builder {
        AllocatorBuilder::Process(builder) => Moved(Allocator::Process(builder.build())),
        _ => unreachable!("a cluster of one process is made of process builders"),
    }
}

/// Whether the worker's last step found something to do or left something to do.
///
/// If not, the worker may park: whatever reaches it later comes with a wake. If so, its peers may
/// have been sent something and must be unparked. A peer that is woken for nothing takes one idle
/// step and wakes nobody, so a cluster comes to rest.
pub fn active(worker: &Worker) -> bool {
    let active = std::cell::Cell::new(false);
    worker.activations().borrow().map_active(|_| active.set(true));
    active.get()
}
