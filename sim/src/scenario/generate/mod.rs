//! Drawing a scenario from a seed.
//!
//! First the swarm switches and the topology, then the workload, and last what depends on how long
//! that takes: the faults. Each part has a stream of its own.

use tandem::env::Role;

use super::draw::Draw;
use super::{Fault, Network, Profile, Scenario, SourceSpec, StrategyChoice, Swarm, Victim};

mod data;
mod expressions;
mod plans;
mod workload;

impl Scenario {
    /// The scenario of this seed and profile.
    pub fn from_seed(seed: u64, profile: Profile) -> Scenario {
        let swarm = draw_swarm(&mut Draw::new(seed, "swarm"));
        let mut topology = Draw::new(seed, "topology");
        let processes = topology.weighted(&[(25, 1), (60, 2), (15, 3)]);
        let workers = topology.weighted(&[(12, 1), (73, 2), (15, 3)]);
        let walk_budget = topology.weighted(&[(20, 2), (30, 8), (30, 32), (20, 10_000)]);
        let idle_effort =
            topology.weighted(&[(40, None), (15, Some(8)), (15, Some(32)), (30, Some(1024))]);
        let source_count = topology.weighted(&[(25, 1), (50, 2), (25, 3)]);
        let sources: Vec<_> = (0..source_count)
            .map(|_| draw_source(&mut topology, profile, swarm.aggressive))
            .collect();
        let operations = workload::draw(seed, profile, swarm, &sources);
        let mut scenario = Scenario {
            seed,
            profile,
            processes,
            workers,
            policy: super::Policy::default(),
            walk_budget,
            idle_effort,
            network: draw_network(&mut Draw::new(seed, "network")),
            swarm,
            sources,
            strategy: draw_strategy(&mut Draw::new(seed, "strategy"), processes * workers),
            operations,
            faults: Vec::new(),
        };
        scenario.faults = draw_faults(&mut Draw::new(seed, "faults"), &scenario);
        scenario
    }
}

fn draw_swarm(draw: &mut Draw) -> Swarm {
    Swarm {
        deletions: draw.percent(80),
        zeros: draw.percent(50),
        extremes: draw.percent(35),
        oddities: draw.percent(30),
        derived: draw.percent(80),
        joins: draw.percent(70),
        queries: draw.percent(75),
        cancels: draw.percent(70),
        drops: draw.percent(65),
        ahead: draw.percent(65),
        aggressive: draw.percent(45),
        lags: draw.percent(60),
        bursts: draw.percent(70),
        slow_merges: draw.percent(45),
        stalled_workers: draw.percent(35),
        stalled_runtimes: draw.percent(35),
    }
}

fn draw_source(draw: &mut Draw, profile: Profile, aggressive: bool) -> SourceSpec {
    let capacities: &[u32] = match profile {
        Profile::Smoke | Profile::Swarm => &[16, 16, 32],
        Profile::Soak => &[16, 32, 64],
    };
    SourceSpec {
        arity: draw.within(2, 3) as usize,
        keys: draw.within(3, 12) as i64,
        values: draw.within(2, 20) as i64,
        skew_percent: draw.one(&[0, 20, 50]),
        capacity: draw.one(capacities),
        lag: draw_lag(draw, aggressive),
    }
}

/// How far a since trails, in timestamps: not at all, closely, or far behind.
fn draw_lag(draw: &mut Draw, aggressive: bool) -> u64 {
    let (least, most) = match aggressive {
        true => draw.weighted(&[(80, (0, 0)), (20, (1, 3))]),
        false => draw.weighted(&[(25, (0, 0)), (40, (1, 5)), (35, (6, 50))]),
    };
    draw.within(least, most)
}

fn draw_network(draw: &mut Draw) -> Network {
    let latency_ns_min = draw.magnitude(1_000, 100_000);
    Network { latency_ns_min, latency_ns_max: latency_ns_min + draw.magnitude(1_000, 900_000) }
}

fn draw_role(draw: &mut Draw) -> Role {
    draw.one(&[Role::Maintenance, Role::Interactive])
}

fn draw_strategy(draw: &mut Draw, peers: usize) -> StrategyChoice {
    let switch_per_mille = draw.one(&[2, 10, 50, 200]);
    if draw.percent(65) {
        return StrategyChoice::Random {
            switch_per_mille,
            stall_per_myriad: draw.one(&[0, 0, 1, 10]),
            stall_ns_max: draw.magnitude(10_000, 2_000_000),
        };
    }
    let role = draw_role(draw);
    StrategyChoice::Starvation {
        victim: match draw.percent(55) {
            true => Victim::Runtime(role),
            false => Victim::Worker { role, worker: draw.index(peers) },
        },
        switch_per_mille,
        starve_ns: draw.magnitude(50_000, 5_000_000),
        relief_ns: draw.magnitude(20_000, 500_000),
    }
}

fn draw_faults(draw: &mut Draw, scenario: &Scenario) -> Vec<Fault> {
    let horizon_ns = scenario.horizon_ns().max(1_000_000);
    let mut faults = Vec::new();
    let mut some = |on: bool, draw: &mut Draw, fault: &dyn Fn(&mut Draw, u64, u64) -> Fault| {
        let count = if on { draw.within(1, 3) } else { 0 };
        for _ in 0..count {
            let from_ns = draw.below(horizon_ns);
            let for_ns = draw.magnitude(20_000, horizon_ns / 4);
            faults.push(fault(draw, from_ns, for_ns));
        }
    };
    let Swarm { slow_merges, stalled_workers, stalled_runtimes, .. } = scenario.swarm;
    some(slow_merges, draw, &|draw, from_ns, for_ns| Fault::SlowMerge {
        factor: draw.magnitude(100, 200_000),
        process: draw.percent(50).then(|| draw.index(scenario.processes)),
        from_ns,
        to_ns: from_ns + for_ns,
    });
    some(stalled_workers, draw, &|draw, from_ns, for_ns| Fault::StallWorker {
        role: draw_role(draw),
        worker: draw.index(scenario.peers()),
        from_ns,
        for_ns,
    });
    some(stalled_runtimes, draw, &|draw, from_ns, for_ns| Fault::StallRuntime {
        role: draw_role(draw),
        from_ns,
        for_ns,
    });
    faults
}
