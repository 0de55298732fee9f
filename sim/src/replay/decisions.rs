//! Decisions as text: numbers with blanks between them, runs of calm choices as `0*17`.

use super::parse::ReplayError;
use crate::sched::Log;

/// The most decisions that a file may stand for: a hundred times those of a long run.
pub const DECISIONS_MAX: usize = 50_000_000;

/// The text of decisions.
pub(super) fn write(decisions: &[u32]) -> String {
    decisions.iter().copied().collect::<Log>().to_string()
}

/// The decisions of a text.
pub(super) fn read(text: &str) -> Result<Vec<u32>, ReplayError> {
    let mut decisions = Vec::new();
    for (position, token) in text.split_whitespace().enumerate() {
        let wrong = || ReplayError::Decision { position, token: token.to_string() };
        let (value, times) = match token.split_once('*') {
            None => (token.parse::<u32>().map_err(|_| wrong())?, 1),
            Some((value, times)) => (
                value.parse::<u32>().map_err(|_| wrong())?,
                times.parse::<usize>().map_err(|_| wrong())?,
            ),
        };
        let len = decisions.len().saturating_add(times);
        if len > DECISIONS_MAX {
            return Err(ReplayError::ManyDecisions { position, len });
        }
        decisions.resize(len, value);
    }
    Ok(decisions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_read_as_they_were_written() {
        let mut decisions = vec![3, 0, 1, 0, 0, 0, u32::MAX];
        decisions.extend([0; 1000]);
        decisions.push(7);
        let text = write(&decisions);
        assert_eq!(text, "3 0 1 0*3 4294967295 0*1000 7");
        assert_eq!(read(&text).unwrap(), decisions);
        assert!(read("").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_decision_is_named_with_its_position() {
        for token in ["x", "-1", "0*", "*3", "0*-1", "4294967296", "0*3*2"] {
            let error = read(&format!("0 {token}")).unwrap_err();
            let expected = ReplayError::Decision { position: 1, token: token.to_string() };
            assert_eq!(error.to_string(), expected.to_string());
        }
        let many = read("0*49999999 1 0*18446744073709551615").unwrap_err();
        assert!(matches!(many, ReplayError::ManyDecisions { position: 2, .. }), "{many:?}");
    }
}
