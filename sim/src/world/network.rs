//! The simulated network: madsim nodes, and the protocol's frames on its TCP.
//!
//! The controller connects to process 0 of the replica. Every other process has a connection of its own to process 0 and
//! sends what its workers say, so that responses of different processes are not ordered among each other.

use std::net::SocketAddr;
use std::rc::Rc;

use madsim::net::{TcpListener, TcpStream};
use madsim::runtime::Handle;
use madsim::task::NodeId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tandem::env::Role;
use tandem::protocol::frame::{Decoder, encode};
use tandem::protocol::{Command, Nonce, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::Notify;

use super::{client, world};
use crate::scenario::Scenario;

/// Where process 0 listens for the controller.
const CONTROL_PORT: u16 = 2101;
/// Where process 0 listens for the other processes.
const PEERS_PORT: u16 = 2102;

/// What one worker said, between processes.
#[derive(Serialize, Deserialize)]
struct Said {
    role: Role,
    worker: usize,
    nonce: Nonce,
    response: Response,
}

thread_local! {
    /// Wakes the task that carries what a process said.
    static SAID: std::cell::RefCell<Vec<Rc<Notify>>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The workers of a process have said something.
pub(super) fn said(process: usize) {
    SAID.with_borrow(|said| said[process].notify_one());
}

fn notify_of(process: usize) -> Rc<Notify> {
    SAID.with_borrow(|said| Rc::clone(&said[process]))
}

fn address(process: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 1, 0, process as u8 + 1], port))
}

/// Creates the nodes and lets them connect. Returns when the controller has its connection.
pub(super) async fn start(scenario: &Scenario) -> Vec<NodeId> {
    SAID.set((0..scenario.processes).map(|_| Rc::new(Notify::new())).collect());
    let handle = Handle::current();
    let mut nodes = Vec::new();
    for process in 0..scenario.processes {
        let ip = address(process, 0).ip();
        let node = handle.create_node().name(format!("process-{process}")).ip(ip).build();
        nodes.push(node.id());
        node.spawn(async move {
            madsim::task::spawn_local(async move {
                if process == 0 { serve().await } else { follow(process).await }
            });
        });
    }
    let controller = handle.create_node().name("controller").ip([10, 1, 1, 1].into()).build();
    nodes.push(controller.id());
    let (connected, ready) = tokio::sync::oneshot::channel();
    controller.spawn(async move {
        madsim::task::spawn_local(control(connected));
    });
    ready.await.expect("the controller connects");
    nodes
}

async fn connect(address: SocketAddr) -> TcpStream {
    loop {
        match TcpStream::connect(address).await {
            Ok(stream) => return stream,
            // Not listening yet.
            Err(_) => super::sleep_until_ns(super::now_ns() + 10_000).await,
        }
    }
}

/// The controller's end of its connection.
async fn control(connected: tokio::sync::oneshot::Sender<()>) {
    let (read, mut write) = split(connect(address(0, CONTROL_PORT)).await);
    connected.send(()).expect("somebody waits for the connection");
    madsim::task::spawn_local(receive(read, |response: Response| {
        client::respond(&world(), response);
    }));
    let world = world();
    loop {
        let commands = world.client.borrow_mut().take_commands();
        if commands.is_empty() {
            world.outgoing.notified().await;
            continue;
        }
        send(&mut write, commands).await;
    }
}

/// Process 0: takes commands, and says what all processes have to say.
async fn serve() {
    let control = TcpListener::bind(address(0, CONTROL_PORT)).await.expect("a free port");
    let peers = TcpListener::bind(address(0, PEERS_PORT)).await.expect("a free port");
    madsim::task::spawn_local(async move {
        loop {
            let (stream, _) = peers.accept().await.expect("the listener lives as long as the node");
            let (read, write) = split(stream);
            madsim::task::spawn_local(async move {
                receive(read, |Said { role, worker, nonce, response }: Said| {
                    let world = world();
                    let merged = world.machine.merge((role, worker, nonce, response), &world.judge);
                    PENDING.with_borrow_mut(|pending| pending.extend(merged));
                    said(0);
                })
                .await;
                drop(write);
            });
        }
    });
    let (stream, _) = control.accept().await.expect("the listener lives as long as the node");
    let (read, mut write) = split(stream);
    madsim::task::spawn_local(receive(read, |command: Command| {
        let world = world();
        world.machine.scheduler().advance_to(super::now_ns());
        world.machine.command(command, &world.judge);
        world.pump.notify_one();
    }));
    let (world, notify) = (world(), notify_of(0));
    loop {
        let mut responses = PENDING.take();
        for from in world.machine.take_said(0) {
            responses.extend(world.machine.merge(from, &world.judge));
        }
        if responses.is_empty() {
            notify.notified().await;
            continue;
        }
        send(&mut write, responses).await;
    }
}

thread_local! {
    /// Merged responses on their way from process 0 to the controller.
    static PENDING: std::cell::RefCell<Vec<Response>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Another process: sends what its workers say to process 0.
async fn follow(process: usize) {
    let (_read, mut write) = split(connect(address(0, PEERS_PORT)).await);
    let (world, notify) = (world(), notify_of(process));
    loop {
        let said = world.machine.take_said(process);
        if said.is_empty() {
            notify.notified().await;
            continue;
        }
        let said = said.into_iter();
        let said =
            said.map(|(role, worker, nonce, response)| Said { role, worker, nonce, response });
        send(&mut write, said).await;
    }
}

async fn send<M: Serialize>(
    write: &mut WriteHalf<TcpStream>,
    messages: impl IntoIterator<Item = M>,
) {
    let mut bytes = Vec::new();
    for message in messages {
        bytes.extend(encode(&message).expect("messages of scenarios are far below the limit"));
    }
    // A connection that is gone is noticed by whoever waits for an answer.
    if write.write_all(&bytes).await.is_ok() {
        let _ = write.flush().await;
    }
}

async fn receive<M: DeserializeOwned>(mut read: ReadHalf<TcpStream>, mut handle: impl FnMut(M)) {
    let mut decoder = Decoder::new();
    let mut buffer = [0; 16 << 10];
    loop {
        match read.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => decoder.extend(&buffer[..length]),
        }
        while let Some(message) = decoder.next().expect("the other end is ours") {
            handle(message);
        }
    }
}
