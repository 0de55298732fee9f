//! Two timely runtimes in one process over one arrangement.
//!
//! The *maintenance* runtime keeps an index of orders by customer and never stops. The
//! *interactive* runtime reads that index from its own threads: it looks up single customers (a
//! snapshot, walked), and it builds a short-lived dataflow that joins the index with itself. It
//! starts first, so that its reads wait for a publisher; once the times it wants are complete it is
//! woken. Neither runtime waits for the other beyond that, and reading pins nothing: the
//! maintenance runtime compacts to its latest time in every round.
//!
//! Run it with `cargo run --example shared_arrangement`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use differential_dataflow::input::InputSession;
use tandem::arrange::{ImportGate, NotReady, Point, Publisher, Snapshot, StartSignal, arrange};
use tandem::env::{Half, PartName};
use tandem::repr::GlobalId;
use timely::communication::WorkerGuards;
use timely::dataflow::ProbeHandle;
use timely::dataflow::operators::{Inspect, Probe};
use timely::progress::Antichain;
use timely::worker::Worker;

/// Orders by customer: the value is the order's number.
type Orders = Point<u64, u64, u64, i64>;

/// Both runtimes must have this many: a key is looked for on the worker of the same number.
const WORKERS: usize = 2;
const CUSTOMERS: u64 = 100;
/// The times at which the interactive runtime reads. Compaction waits at the first until all are
/// done.
const READ_FROM: u64 = 50;
const READ_UNTIL: u64 = 53;

fn main() {
    let name = |worker| PartName { id: GlobalId::User(1), half: Half::Oks, worker };
    let points: Vec<_> =
        (0..WORKERS).map(|worker| Arc::new(Orders::placeholder(name(worker)))).collect();
    let readers_left = Arc::new(AtomicUsize::new(WORKERS));

    let interactive = spawn({
        let (points, readers_left) = (points.clone(), Arc::clone(&readers_left));
        move |worker| {
            read(worker, &points[worker.index()]);
            readers_left.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let maintenance = spawn(move |worker| maintain(worker, &points[worker.index()], &readers_left));
    for result in interactive.join().into_iter().chain(maintenance.join()) {
        result.expect("no worker panics");
    }
}

fn spawn(logic: impl Fn(&mut Worker) + Send + Sync + 'static) -> WorkerGuards<()> {
    timely::execute(timely::Config::process(WORKERS), logic).expect("threads start")
}

/// In each round every customer places an order and the order before the last is delivered.
fn maintain(worker: &mut Worker, point: &Arc<Orders>, readers_left: &AtomicUsize) {
    let mut input = InputSession::new();
    let publisher = worker.dataflow(|scope| {
        let arranged = arrange(input.to_collection(scope), "Orders");
        Publisher::attach(&arranged, Arc::clone(point))
    });
    let mut time = 0;
    while readers_left.load(Ordering::SeqCst) > 0 {
        for customer in (0..CUSTOMERS).filter(|c| *c as usize % WORKERS == worker.index()) {
            input.update((customer, time), 1);
            if time >= 2 {
                input.update((customer, time - 2), -1);
            }
        }
        time += 1;
        input.advance_to(time);
        input.flush();
        while point.load().upper().less_than(&time) {
            worker.step();
        }
        // The one hold there is: whoever admits reads keeps their times readable until they are
        // captured.
        publisher.allow_compaction(&Antichain::from_elem(time.min(READ_FROM)));
        publisher.tick();
    }
    publisher.allow_compaction(&Antichain::from_elem(time - 1));
    publisher.tick();
    let state = publisher.state().expect("it is not closed");
    println!("maintenance {}: {time} rounds, then {state:?}", worker.index());
    assert_eq!(state.logical, Antichain::from_elem(time - 1), "readers pin nothing");
    assert!(state.batches < 20, "nor do they keep batches from merging");
}

fn read(worker: &mut Worker, point: &Arc<Orders>) {
    // Built before there is a publisher, and over the same index twice.
    let (start, probe) = (StartSignal::started(), ProbeHandle::new());
    let as_of = Antichain::from_elem(READ_FROM);
    let gate =
        ImportGate::new(as_of, Antichain::from_elem(READ_UNTIL), start).expect("an interval");
    let pairs = Rc::new(RefCell::new(Vec::new()));
    let sink = Rc::clone(&pairs);
    worker.dataflow(|scope| {
        let orders = gate.import(scope, Arc::clone(point));
        orders
            .clone()
            .join_core(orders, |customer, one, two| (one < two).then_some((*customer, *one, *two)))
            .inner
            .inspect(move |update| sink.borrow_mut().push(*update))
            .probe_with(&probe);
    });
    assert!(!gate.captured(), "nothing is captured at construction");

    peek(worker, point);
    while !probe.done() {
        worker.step_or_park(None);
    }
    if let Some(refused) = gate.refused() {
        panic!("the hold at {READ_FROM} should have prevented this: {refused}");
    }
    check_pairs(worker, &pairs.borrow());
}

/// Looks up this worker's customers, as soon as the time can be read.
fn peek(worker: &mut Worker, point: &Arc<Orders>) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut waited = 0;
    let snapshot: Snapshot<_, _, _, _> = loop {
        match point.snapshot_at(&READ_FROM) {
            Ok(snapshot) => break snapshot,
            Err(NotReady::Refused(refused)) => panic!("{refused}"),
            Err(NotReady::Wait) => {
                // Register first, then look again: a publication in between wakes nobody.
                point.register(&waker);
                if matches!(point.snapshot_at(&READ_FROM), Err(NotReady::Wait)) {
                    waited += 1;
                    worker.step_or_park(None);
                }
            }
        }
    };
    let mut orders = 0;
    let mut walk = snapshot.walk(Some((0..CUSTOMERS).collect()));
    // In slices: between two of them a real worker would see to others.
    while !walk.step(&mut 16, |_, order, count| {
        assert!((*order == READ_FROM || *order == READ_FROM - 1) && count == 1);
        orders += 1;
    }) {}
    println!("interactive {}: waited {waited} times, found {orders} orders", worker.index());
    assert!(orders > 0);
}

/// At each time read, each customer has the last two orders: one pair.
fn check_pairs(worker: &Worker, pairs: &[((u64, u64, u64), u64, i64)]) {
    for time in READ_FROM..READ_UNTIL {
        let mut sums = std::collections::BTreeMap::new();
        for (pair, _, diff) in pairs.iter().filter(|(_, moment, _)| *moment <= time) {
            *sums.entry(*pair).or_insert(0) += diff;
        }
        sums.retain(|_, count| *count != 0);
        assert!(!sums.is_empty());
        assert!(sums.iter().all(|((_, one, two), n)| (*one, *two, *n) == (time - 1, time, 1)));
        println!("interactive {}: {} pairs at {time}", worker.index(), sums.len());
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
