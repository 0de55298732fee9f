//! What a source holds: the guard that keeps its multiplicities legal, whatever was deleted from the
//! scenario.

use std::collections::BTreeMap;

use tandem::repr::{Datum, Diff, Row};

/// The rows of one source, and which updates it admits.
///
/// A row's multiplicity never goes below zero, and their sum never above the capacity. The generator
/// draws updates that are admitted whole; after shrinking, an update may find that what it deletes
/// was never inserted.
#[derive(Clone, Debug)]
pub struct Ledger {
    arity: usize,
    capacity: Diff,
    total: Diff,
    rows: BTreeMap<Row, Diff>,
}

impl Ledger {
    /// An empty ledger of rows of `arity` columns that holds at most `capacity` of them.
    pub fn new(arity: usize, capacity: Diff) -> Ledger {
        Ledger { arity, capacity, total: 0, rows: BTreeMap::new() }
    }

    /// Records the updates as far as they are admissible, in order, and returns that part. Rows of
    /// another arity are cut, or filled with `Null`.
    pub fn admit(&mut self, updates: &[(Row, Diff)]) -> Vec<(Row, Diff)> {
        updates
            .iter()
            .filter_map(|(row, diff)| {
                let mut row = row.clone();
                row.0.resize(self.arity, Datum::Null);
                let diff = self.admit_one(&row, *diff);
                (diff != 0).then_some((row, diff))
            })
            .collect()
    }

    fn admit_one(&mut self, row: &Row, diff: Diff) -> Diff {
        let held = self.rows.get(row).copied().unwrap_or(0);
        // The total is within the capacity, so the range is never empty and always holds zero.
        let diff = diff.clamp(-held, self.capacity - self.total);
        self.total += diff;
        match held + diff {
            0 => self.rows.remove(row),
            now => self.rows.insert(row.clone(), now),
        };
        diff
    }

    /// How many more rows it admits.
    pub fn room(&self) -> Diff {
        self.capacity - self.total
    }

    /// The rows it holds, each with its multiplicity, which is positive.
    pub fn rows(&self) -> &BTreeMap<Row, Diff> {
        &self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_of_what_is_not_there_and_insertions_beyond_capacity_are_cut() {
        let mut ledger = Ledger::new(1, 3);
        let (one, two) = (Row::new([1]), Row::new([2]));
        let updates = [(one.clone(), -1), (one.clone(), 2), (two.clone(), 5), (one.clone(), -7)];
        let admitted = ledger.admit(&updates);
        assert_eq!(admitted, vec![(one.clone(), 2), (two.clone(), 1), (one, -2)]);
        assert_eq!(ledger.room(), 2);
        assert_eq!(ledger.rows(), &BTreeMap::from([(two, 1)]));
    }

    #[test]
    fn rows_of_another_arity_are_made_to_fit() {
        let mut ledger = Ledger::new(2, 9);
        let admitted = ledger.admit(&[(Row::new([1]), 1), (Row::new([1, 2, 3]), 1)]);
        let padded = Row(vec![Datum::Int(1), Datum::Null]);
        assert_eq!(admitted, vec![(padded, 1), (Row::new([1, 2]), 1)]);
    }

    #[test]
    fn extreme_differences_do_not_overflow() {
        let mut ledger = Ledger::new(1, 4);
        let row = Row::new([1]);
        let admitted = ledger.admit(&[(row.clone(), i64::MAX), (row.clone(), i64::MIN)]);
        assert_eq!(admitted, vec![(row.clone(), 4), (row, -4)]);
    }
}
