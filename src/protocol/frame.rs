//! Messages on a byte stream.
//!
//! A connection begins with a [`Preamble`] from each side. After it, every message is one frame:
//! the length of the payload as four bytes, least significant first, and the payload in postcard's
//! encoding.
//!
//! The peer is an outsider. A length is judged before anything is allocated for it, a payload must
//! be one message and nothing else, and whatever is wrong is a [`FrameError`] that says where in
//! the stream. After an error there is no telling where the next frame begins, so a [`Decoder`]
//! that has met one gives the same error for ever and the connection is to be closed.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The greatest length of a payload, in bytes.
pub const MAX_FRAME: usize = 64 << 20;

/// The bytes of a frame before its payload.
const HEADER: usize = 4;

/// A message that cannot be framed, or a stream that is not a sequence of framed messages.
///
/// Offsets are counted in bytes from the start of the stream to the start of the frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A message that has no encoding.
    #[error("the message cannot be encoded: {what}")]
    Unencodable {
        /// What the encoder says.
        what: String,
    },
    /// A message too long to be sent.
    #[error("a message of {length} bytes exceeds the limit of {limit}")]
    TooLongToSend {
        /// The length of the payload, in bytes.
        length: usize,
        /// [`MAX_FRAME`].
        limit: usize,
    },
    /// A frame that claims too great a length.
    #[error("the frame at byte {offset} claims {length} bytes, the limit is {limit}")]
    TooLong {
        /// Where the frame begins.
        offset: u64,
        /// The length it claims for its payload, in bytes.
        length: usize,
        /// [`MAX_FRAME`].
        limit: usize,
    },
    /// A payload that ends before its message does.
    #[error("the frame at byte {offset} ends after {length} bytes, inside its message")]
    Truncated {
        /// Where the frame begins.
        offset: u64,
        /// The length of its payload, in bytes.
        length: usize,
    },
    /// A payload that goes on after its message.
    #[error("the frame at byte {offset} has {trailing} of {length} bytes after its message")]
    Trailing {
        /// Where the frame begins.
        offset: u64,
        /// The length of its payload, in bytes.
        length: usize,
        /// How many of them are left over.
        trailing: usize,
    },
    /// A payload that is no message: an unknown variant, say.
    #[error("the frame at byte {offset}, of {length} bytes, is no message: {what}")]
    Malformed {
        /// Where the frame begins.
        offset: u64,
        /// The length of its payload, in bytes.
        length: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The stream ended inside a frame.
    #[error("the stream ends {have} bytes into the frame at byte {offset}")]
    Unfinished {
        /// Where the frame begins.
        offset: u64,
        /// How many bytes of it there are, its header included.
        have: usize,
    },
}

/// The frame of a message.
///
/// # Errors
/// [`FrameError::Unencodable`] and [`FrameError::TooLongToSend`].
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, FrameError> {
    let mut frame = postcard::to_extend(message, vec![0; HEADER])
        .map_err(|error| FrameError::Unencodable { what: error.to_string() })?;
    let length = frame.len() - HEADER;
    match u32::try_from(length) {
        Ok(header) if length <= MAX_FRAME => {
            frame[..HEADER].copy_from_slice(&header.to_le_bytes());
            Ok(frame)
        }
        _ => Err(FrameError::TooLongToSend { length, limit: MAX_FRAME }),
    }
}

/// Takes bytes as they come and gives the messages that are complete.
#[derive(Clone, Debug)]
pub struct Decoder<M> {
    /// What was received and not yet decoded, behind `start`.
    buffer: Vec<u8>,
    /// How much of `buffer` is decoded.
    start: usize,
    /// Where in the stream `buffer[start]` is.
    offset: u64,
    poison: Option<FrameError>,
    message: PhantomData<fn() -> M>,
}

impl<M> Default for Decoder<M> {
    fn default() -> Self {
        Decoder { buffer: vec![], start: 0, offset: 0, poison: None, message: PhantomData }
    }
}

impl<M: DeserializeOwned> Decoder<M> {
    /// A decoder at the start of a stream, after its preamble.
    pub fn new() -> Decoder<M> {
        Decoder::default()
    }

    /// Takes the next bytes of the stream. After an error they are ignored.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.poison.is_some() {
            return;
        }
        // What is decoded goes in one move for all messages of the bytes before.
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, if all of it is here.
    ///
    /// # Errors
    /// [`FrameError`] when the stream is broken; from then on always this same error.
    #[allow(clippy::should_implement_trait, reason = "more bytes may follow the end of these")]
    pub fn next(&mut self) -> Result<Option<M>, FrameError> {
        if let Some(error) = &self.poison {
            return Err(error.clone());
        }
        let result = self.decode();
        if let Err(error) = &result {
            self.poison = Some(error.clone());
            self.buffer = vec![];
            self.start = 0;
        }
        result
    }

    /// Whether the stream may end here.
    ///
    /// # Errors
    /// [`FrameError::Unfinished`] inside a frame, or the error that [`Decoder::next`] gave.
    pub fn finish(&self) -> Result<(), FrameError> {
        match &self.poison {
            Some(error) => Err(error.clone()),
            None if self.start == self.buffer.len() => Ok(()),
            None => Err(FrameError::Unfinished {
                offset: self.offset,
                have: self.buffer.len() - self.start,
            }),
        }
    }

    fn decode(&mut self) -> Result<Option<M>, FrameError> {
        let offset = self.offset;
        let Some((header, rest)) = self.buffer[self.start..].split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::TooLong { offset, length, limit: MAX_FRAME });
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let message = match postcard::take_from_bytes(payload) {
            Ok((message, [])) => message,
            Ok((_, trailing)) => {
                return Err(FrameError::Trailing { offset, length, trailing: trailing.len() });
            }
            Err(postcard::Error::DeserializeUnexpectedEnd) => {
                return Err(FrameError::Truncated { offset, length });
            }
            Err(error) => {
                return Err(FrameError::Malformed { offset, length, what: describe(&error) });
            }
        };
        self.start += HEADER + length;
        self.offset += (HEADER + length) as u64;
        Ok(Some(message))
    }
}

/// What postcard does not tell apart: it drops serde's message.
const OUTSIDE: &str = "an unknown variant, a value outside its type, or nested too deeply";

/// Postcard's errors in terms of the bytes, rather than of postcard.
fn describe(error: &postcard::Error) -> &'static str {
    match error {
        postcard::Error::DeserializeBadVarint => "an integer does not end",
        postcard::Error::DeserializeBadBool => "a truth value is neither 0 nor 1",
        postcard::Error::DeserializeBadOption => "an option is neither 0 nor 1",
        postcard::Error::DeserializeBadUtf8 => "a text is not UTF-8",
        postcard::Error::DeserializeBadEnum | postcard::Error::SerdeDeCustom => OUTSIDE,
        _ => "not in postcard's encoding",
    }
}

/// What each side sends before anything else: that it speaks this protocol, and which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// The version of the protocol. Different versions do not understand each other.
    pub version: u32,
}

/// A connection from something that does not speak this protocol, or not this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreambleError {
    /// The connection did not begin as ours do.
    #[error("the peer begins with {found:02x?}, this protocol with {expected:02x?}")]
    Magic {
        /// What it began with.
        found: [u8; 4],
        /// What it should have begun with.
        expected: [u8; 4],
    },
    /// The peer speaks another version.
    #[error("the peer speaks version {theirs}, this side version {ours}")]
    Version {
        /// This side's version.
        ours: u32,
        /// The peer's version.
        theirs: u32,
    },
}

impl Preamble {
    /// The length of an encoded preamble, in bytes.
    pub const LENGTH: usize = 8;

    /// The preamble of this version of the protocol.
    pub const CURRENT: Preamble = Preamble { version: 1 };

    const MAGIC: [u8; 4] = *b"tndm";

    /// The preamble as sent.
    pub fn encode(self) -> [u8; Preamble::LENGTH] {
        let mut bytes = [0; Preamble::LENGTH];
        bytes[..4].copy_from_slice(&Preamble::MAGIC);
        bytes[4..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// Whether a peer that begins with `bytes` can be understood.
    ///
    /// # Errors
    /// [`PreambleError`] if it cannot.
    pub fn check(self, bytes: [u8; Preamble::LENGTH]) -> Result<(), PreambleError> {
        let [a, b, c, d, version @ ..] = bytes;
        let found = [a, b, c, d];
        let theirs = u32::from_le_bytes(version);
        if found != Preamble::MAGIC {
            Err(PreambleError::Magic { found, expected: Preamble::MAGIC })
        } else if theirs != self.version {
            Err(PreambleError::Version { ours: self.version, theirs })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{MAX_NESTING, Plan};
    use crate::protocol::{Command, Frontiers, Nonce};
    use crate::repr::{Frontier, GlobalId};

    fn hello(nonce: u64) -> Command {
        Command::Hello { nonce: Nonce(nonce) }
    }

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(payload);
        frame
    }

    fn failed(bytes: &[u8]) -> (Decoder<Command>, FrameError) {
        let mut decoder = Decoder::new();
        decoder.extend(bytes);
        let error = decoder.next().expect_err("a broken stream");
        (decoder, error)
    }

    #[test]
    fn messages_come_out_whole_however_the_bytes_are_cut() {
        let messages = [hello(1), hello(u64::MAX), Command::InitializationComplete];
        let mut stream = vec![];
        for message in &messages {
            stream.extend(encode(message).expect("short"));
        }
        for chunk in 1..=stream.len() {
            let mut decoder = Decoder::<Command>::new();
            let mut seen = vec![];
            for bytes in stream.chunks(chunk) {
                decoder.extend(bytes);
                while let Some(message) = decoder.next().expect("well formed") {
                    seen.push(message);
                }
            }
            assert_eq!(seen, messages, "in chunks of {chunk}");
            decoder.finish().expect("nothing is left over");
        }
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_payload_arrives() {
        let (_, error) = failed(&u32::MAX.to_le_bytes());
        let length = u32::MAX as usize;
        assert_eq!(error, FrameError::TooLong { offset: 0, length, limit: MAX_FRAME });
    }

    #[test]
    fn a_message_over_the_limit_is_not_sent() {
        let error = encode(&vec![0u8; MAX_FRAME]).expect_err("its length takes bytes too");
        let length = MAX_FRAME + 4;
        assert_eq!(error, FrameError::TooLongToSend { length, limit: MAX_FRAME });
    }

    #[test]
    fn errors_say_where_the_frame_begins_and_what_is_wrong_with_it() {
        let good = encode(&hello(7)).expect("short");
        let offset = good.len() as u64;
        let after_good = |payload: &[u8]| failed_second(&good, payload);
        let trailing = after_good(&[0, 7, 9, 9]);
        assert_eq!(trailing, FrameError::Trailing { offset, length: 4, trailing: 2 });
        assert_eq!(after_good(&[0]), FrameError::Truncated { offset, length: 1 });
        assert_eq!(after_good(&[]), FrameError::Truncated { offset, length: 0 });
        let unknown = after_good(&[99]);
        assert_eq!(unknown, FrameError::Malformed { offset, length: 1, what: OUTSIDE });
        assert!(unknown.to_string().contains(&format!("byte {offset}")));
    }

    fn failed_second(good: &[u8], payload: &[u8]) -> FrameError {
        let mut decoder = Decoder::<Command>::new();
        decoder.extend(good);
        decoder.extend(&framed(payload));
        assert_eq!(decoder.next(), Ok(Some(hello(7))));
        decoder.next().expect_err("a broken frame")
    }

    #[test]
    fn a_broken_stream_stays_broken_and_takes_no_more_memory() {
        let (mut decoder, error) = failed(&framed(&[99]));
        for _ in 0..3 {
            decoder.extend(&encode(&hello(1)).expect("short"));
            assert_eq!(decoder.next(), Err(error.clone()));
        }
        assert_eq!(decoder.buffer.len(), 0);
        assert_eq!(decoder.finish(), Err(error));
    }

    #[test]
    fn a_stream_that_ends_inside_a_frame_is_unfinished() {
        let mut decoder = Decoder::<Command>::new();
        let frame = encode(&hello(300)).expect("short");
        decoder.extend(&frame);
        decoder.extend(&frame[..5]);
        assert_eq!(decoder.next(), Ok(Some(hello(300))));
        assert_eq!(decoder.next(), Ok(None));
        let offset = frame.len() as u64;
        assert_eq!(decoder.finish(), Err(FrameError::Unfinished { offset, have: 5 }));
    }

    #[test]
    fn a_frontier_of_several_times_is_no_frontier() {
        let frontiers = |bytes: &[u8]| {
            let mut decoder = Decoder::<Frontiers>::new();
            decoder.extend(&framed(bytes));
            decoder.next()
        };
        let write = Some(Frontier::from_elem(3));
        let expected = Frontiers { write, ..Frontiers::default() };
        assert_eq!(frontiers(&[1, 1, 3, 0, 0]), Ok(Some(expected)));
        let error = FrameError::Malformed { offset: 0, length: 6, what: OUTSIDE };
        assert_eq!(frontiers(&[1, 2, 3, 5, 0, 0]), Err(error));
    }

    #[test]
    fn nesting_that_would_exhaust_the_stack_is_an_error_on_either_side() {
        let negated = |depth: usize| {
            let get = Plan::Get(GlobalId::User(1));
            (1..depth).fold(get, |input, _| Plan::Negate { input: Box::new(input) })
        };
        let mut decoder = Decoder::<Plan>::new();
        let deepest = encode(&negated(MAX_NESTING)).expect("within the limit");
        decoder.extend(&deepest);
        assert_eq!(decoder.next(), Ok(Some(negated(MAX_NESTING))));
        let error = encode(&negated(MAX_NESTING + 1)).expect_err("too deep");
        assert!(matches!(error, FrameError::Unencodable { .. }));
        // One byte for each level, until the stack would be gone.
        let bomb = vec![deepest[HEADER]; 1 << 20];
        decoder.extend(&framed(&bomb));
        let (offset, length) = (deepest.len() as u64, bomb.len());
        let error = FrameError::Malformed { offset, length, what: OUTSIDE };
        assert_eq!(decoder.next(), Err(error));
        assert_eq!(encode(&negated(2)).map(|frame| frame.len()), Ok(HEADER + 4), "it recovers");
    }

    #[test]
    fn a_preamble_of_another_version_names_both() {
        let ours = Preamble::CURRENT;
        assert_eq!(ours.check(ours.encode()), Ok(()));
        let other = Preamble { version: ours.version + 1 };
        let error = ours.check(other.encode()).expect_err("another version");
        assert_eq!(error, PreambleError::Version { ours: ours.version, theirs: ours.version + 1 });
        assert!(matches!(ours.check(*b"GET / HT"), Err(PreambleError::Magic { .. })));
    }
}
