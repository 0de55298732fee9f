//! A compact list of decisions.
//!
//! Most decisions of most runs are the calm choice, so runs of zeros are stored as their length. A
//! byte below `ZEROS` is that decision; `ZEROS` and a varint is so many calm choices;
//! `WIDE` and a varint is one decision that does not fit a byte.

use std::fmt;

/// Announces a run of calm choices.
const ZEROS: u8 = 0xfe;
/// Announces a decision of `ZEROS` or more.
const WIDE: u8 = 0xff;

/// Decisions, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    bytes: Vec<u8>,
    /// Calm choices at the end that are not yet in `bytes`.
    zeros: u64,
    len: u64,
}

impl Log {
    /// An empty list.
    pub fn new() -> Self {
        Log::default()
    }

    /// The number of decisions.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a decision.
    #[inline]
    pub fn push(&mut self, decision: u32) {
        self.len += 1;
        if decision == 0 {
            self.zeros += 1;
        } else {
            self.push_other(decision);
        }
    }

    #[inline]
    fn push_other(&mut self, decision: u32) {
        if self.zeros > 0 {
            self.flush_zeros();
        }
        if decision < u32::from(ZEROS) {
            self.bytes.push(decision as u8);
        } else {
            self.bytes.push(WIDE);
            varint(&mut self.bytes, u64::from(decision));
        }
    }

    fn flush_zeros(&mut self) {
        match self.zeros {
            // A short run is no longer when written out.
            1 | 2 => self.bytes.extend(std::iter::repeat_n(0, self.zeros as usize)),
            zeros => {
                self.bytes.push(ZEROS);
                varint(&mut self.bytes, zeros);
            }
        }
        self.zeros = 0;
    }

    /// The decisions.
    pub fn decisions(&self) -> Vec<u32> {
        let mut decisions = Vec::with_capacity(self.len as usize);
        let mut bytes = self.bytes.as_slice();
        while let Some((&first, rest)) = bytes.split_first() {
            bytes = rest;
            match first {
                ZEROS => {
                    let zeros = read_varint(&mut bytes) as usize;
                    decisions.resize(decisions.len() + zeros, 0);
                }
                WIDE => decisions.push(read_varint(&mut bytes) as u32),
                small => decisions.push(u32::from(small)),
            }
        }
        decisions.resize(decisions.len() + self.zeros as usize, 0);
        decisions
    }
}

impl FromIterator<u32> for Log {
    fn from_iter<I: IntoIterator<Item = u32>>(decisions: I) -> Self {
        let mut log = Log::new();
        decisions.into_iter().for_each(|decision| log.push(decision));
        log
    }
}

/// For people: `3 0*17 1` is a three, seventeen calm choices and a one.
impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decisions = self.decisions();
        let runs = decisions.chunk_by(|left, right| *left == 0 && *right == 0);
        for (index, run) in runs.enumerate() {
            let gap = if index == 0 { "" } else { " " };
            match run {
                [decision] => write!(f, "{gap}{decision}")?,
                zeros => write!(f, "{gap}0*{}", zeros.len())?,
            }
        }
        Ok(())
    }
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads what [`varint`] wrote. Only ever applied to bytes of a [`Log`], which are well formed.
fn read_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    let mut shift = 0;
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_read_back() {
        let mut decisions = vec![0, 1, 0, 0, 2, 0xfd, 0xfe, 0xff, 0x100, u32::MAX];
        decisions.extend([0; 1000]);
        decisions.push(7);
        decisions.extend([0; 5]);
        let log: Log = decisions.iter().copied().collect();
        assert_eq!(log.decisions(), decisions);
        assert_eq!(log.len(), decisions.len() as u64);
        assert!(log.bytes.len() < 40, "a thousand calm choices take {} bytes", log.bytes.len());
    }

    #[test]
    fn people_read_runs() {
        let log: Log = [3, 0, 0, 0, 1, 0, 9].into_iter().collect();
        assert_eq!(log.to_string(), "3 0*3 1 0 9");
    }
}
