//! O1: every row answer equals the sequential reference model at that time.

use tandem::protocol::{PeekId, PeekResponse};
use tandem::repr::{Row, Timestamp};

use super::Verdict;
use crate::model::Expected;
use crate::report::{Oracle, Violation};

/// Judges the answer of a read that the controller still wanted.
pub fn answered(
    now: u64,
    peek: PeekId,
    at: Timestamp,
    expected: &Expected,
    seen: &PeekResponse,
    verdict: &mut Verdict,
) {
    verdict.checked(Oracle::O1);
    let right = match (expected, seen) {
        (Expected::Rows(expected), PeekResponse::Rows(seen)) => expected == seen,
        (Expected::Error(_), PeekResponse::Error(_)) => true,
        _ => false,
    };
    if !right {
        let message = format!(
            "{peek} at {at}: expected {}, seen {}",
            show_expected(expected),
            show_response(seen)
        );
        verdict.found(Violation::new(Oracle::O1, now, message).of_peek(peek));
    }
}

fn show_expected(expected: &Expected) -> String {
    match expected {
        Expected::Rows(rows) => show_rows(rows),
        other => format!("{other:?}"),
    }
}

/// An answer as people read it.
pub fn show_response(response: &PeekResponse) -> String {
    match response {
        PeekResponse::Rows(rows) => show_rows(rows),
        PeekResponse::Error(error) => format!("the error {error:?}"),
        PeekResponse::Canceled => "canceled".to_string(),
    }
}

fn show_rows(rows: &[(Row, u64)]) -> String {
    const SHOWN: usize = 12;
    let shown = rows.iter().take(SHOWN).map(|(row, count)| format!("{row}x{count}"));
    let mut shown: Vec<_> = shown.collect();
    if rows.len() > SHOWN {
        shown.push(format!("and {} more", rows.len() - SHOWN));
    }
    format!("{} rows [{}]", rows.len(), shown.join(" "))
}
