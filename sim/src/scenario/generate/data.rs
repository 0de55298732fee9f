//! What sources are fed: rows with a hot key, deletions, and now and then a row that spoils
//! whatever is computed over it, until it is deleted again.

use tandem::repr::{Datum, Diff, Row};

use crate::scenario::draw::Draw;
use crate::scenario::{Ledger, SourceSpec, Swarm};

/// A source while its workload is drawn.
pub(super) struct Feed {
    spec: SourceSpec,
    ledger: Ledger,
    /// Its upper, if all operations so far were carried out.
    pub(super) upper: u64,
}

impl Feed {
    pub(super) fn new(spec: SourceSpec) -> Feed {
        Feed { spec, ledger: spec.ledger(), upper: 0 }
    }

    /// The updates of one tick, at most `most`; its ledger admits them whole.
    pub(super) fn tick(&mut self, draw: &mut Draw, swarm: &Swarm, most: u64) -> Vec<(Row, Diff)> {
        self.upper += 1;
        let count = match draw.below(100) {
            0..3 => 0,
            3..35 => 1,
            35..85 => draw.within(2, 4),
            _ => draw.within(1, most),
        };
        let mut updates = Vec::new();
        for _ in 0..count {
            for update in self.change(draw, swarm) {
                updates.extend(self.ledger.admit(&[update]));
            }
        }
        updates
    }

    /// One change: a deletion, a replacement or an insertion.
    fn change(&self, draw: &mut Draw, swarm: &Swarm) -> Vec<(Row, Diff)> {
        let spoiler = self.ledger.rows().iter().find(|(row, _)| row.0.iter().any(spoils));
        if let Some((row, held)) = spoiler
            && draw.percent(4)
        {
            return vec![(row.clone(), -held)];
        }
        let full = self.ledger.room() == 0;
        if full || (swarm.deletions && draw.percent(30)) {
            let Some((row, held)) = self.held(draw) else { return vec![] };
            let diff = if draw.percent(70) { -1 } else { -held };
            return vec![(row, diff)];
        }
        if swarm.deletions
            && draw.percent(20)
            && let Some((old, _)) = self.held(draw)
        {
            let mut new = old.clone();
            let column = draw.index(new.0.len());
            new.0[column] = self.datum(draw, column);
            return vec![(old, -1), (new, 1)];
        }
        vec![(self.row(draw, swarm), draw.weighted(&[(85, 1), (10, 2), (5, 3)]))]
    }

    /// Any row that the source holds.
    fn held(&self, draw: &mut Draw) -> Option<(Row, Diff)> {
        let rows = self.ledger.rows();
        let nth = draw.index(rows.len().max(1));
        rows.iter().nth(nth).map(|(row, held)| (row.clone(), *held))
    }

    fn row(&self, draw: &mut Draw, swarm: &Swarm) -> Row {
        let mut row = Row((0..self.spec.arity).map(|column| self.datum(draw, column)).collect());
        let odd: &[(bool, Datum)] = &[
            (swarm.zeros, Datum::Int(0)),
            (swarm.extremes, Datum::Int(i64::MAX)),
            (swarm.extremes, Datum::Int(i64::MIN)),
            (swarm.oddities, Datum::Null),
            (swarm.oddities, Datum::from("odd")),
        ];
        for (on, datum) in odd {
            if *on && draw.percent(5) {
                let column = draw.index(row.0.len());
                row.0[column] = datum.clone();
            }
        }
        row
    }

    fn datum(&self, draw: &mut Draw, column: usize) -> Datum {
        if column > 0 {
            return Datum::Int(1 + draw.below(self.spec.values as u64) as i64);
        }
        if draw.percent(self.spec.skew_percent) {
            return Datum::Int(1);
        }
        Datum::Int(1 + draw.below(self.spec.keys as u64) as i64)
    }
}

/// Whether expressions over this value are apt to fail.
fn spoils(datum: &Datum) -> bool {
    matches!(datum, Datum::Int(0 | i64::MIN | i64::MAX) | Datum::Text(_))
}
