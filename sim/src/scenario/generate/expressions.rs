//! Expressions, aggregates and finishings, over columns that count modulo those there are.

use tandem::plan::{Aggregate, BinaryFunc, Expr, Finishing, OrderBy};

use crate::scenario::draw::Draw;

/// More columns than most rows have, so that all of them are met.
const COLUMNS: usize = 6;

pub(super) fn column(draw: &mut Draw) -> usize {
    draw.index(COLUMNS)
}

/// Between `least` and `most` columns, possibly some of them twice.
pub(super) fn columns(draw: &mut Draw, least: u64, most: u64) -> Vec<usize> {
    (0..draw.within(least, most)).map(|_| column(draw)).collect()
}

fn small(draw: &mut Draw) -> Expr {
    Expr::literal(draw.within(1, 12) as i64)
}

/// A number. Divides by columns, so that zeros in the data become errors.
pub(super) fn scalar(draw: &mut Draw) -> Expr {
    let left = Expr::Column(column(draw));
    let func = draw.weighted(&[
        (25, BinaryFunc::Add),
        (15, BinaryFunc::Sub),
        (20, BinaryFunc::Mul),
        (30, BinaryFunc::Div),
        (10, BinaryFunc::Rem),
    ]);
    let right = if draw.percent(70) { Expr::Column(column(draw)) } else { small(draw) };
    left.call(func, right)
}

/// A truth value, true of a good part of the data.
pub(super) fn predicate(draw: &mut Draw) -> Expr {
    let left = Expr::Column(column(draw));
    let not = |expr| Expr::Not(Box::new(expr));
    match draw.below(100) {
        0..25 => left.call(BinaryFunc::Lt, small(draw)),
        25..50 => not(left.call(BinaryFunc::Lt, Expr::literal(draw.within(2, 6) as i64))),
        50..60 => left.call(BinaryFunc::Lt, Expr::Column(column(draw))),
        60..66 => left.call(BinaryFunc::Eq, small(draw)),
        66..80 => not(left.call(BinaryFunc::Eq, small(draw))),
        80..90 => {
            let func = draw.one(&[BinaryFunc::And, BinaryFunc::Or]);
            predicate(draw).call(func, left.call(BinaryFunc::Lt, small(draw)))
        }
        _ => fallible(draw),
    }
}

/// A truth value that cannot be told for some rows.
fn fallible(draw: &mut Draw) -> Expr {
    scalar(draw).call(BinaryFunc::Lt, small(draw))
}

pub(super) fn aggregate(draw: &mut Draw) -> Aggregate {
    let column = column(draw);
    match draw.below(4) {
        0 => Aggregate::Count,
        1 => Aggregate::Sum(column),
        2 => Aggregate::Min(column),
        _ => Aggregate::Max(column),
    }
}

pub(super) fn finishing(draw: &mut Draw) -> Finishing {
    if draw.percent(45) {
        return Finishing::default();
    }
    let filter = match draw.below(100) {
        0..25 => vec![predicate(draw)],
        25..45 => vec![fallible(draw)],
        _ => vec![],
    };
    let project = draw.percent(30).then(|| columns(draw, 1, 3));
    let order = |draw: &mut Draw| OrderBy { column: column(draw), descending: draw.percent(50) };
    let order_by = match draw.below(3) {
        0 => vec![order(draw)],
        1 => vec![order(draw), order(draw)],
        _ => vec![],
    };
    let offset = if draw.percent(15) { draw.within(1, 5) as usize } else { 0 };
    let limit = draw.percent(35).then(|| draw.weighted(&[(8, 0), (32, 1), (30, 4), (30, 10)]));
    Finishing { filter, project, order_by, offset, limit }
}
