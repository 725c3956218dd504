//! Just enough of the protocol: the head of requests, the records of those that store
//! something, and how a client says who it is.

use std::io;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use sink_testkit::conformance::Garbage;

pub(crate) const PRODUCE: i16 = 0;
pub(crate) const METADATA: i16 = 3;
pub(crate) const FIND_COORDINATOR: i16 = 10;
pub(crate) const SASL_HANDSHAKE: i16 = 17;
pub(crate) const API_VERSIONS: i16 = 18;
pub(crate) const SASL_AUTHENTICATE: i16 = 36;

/// What a broker answers to a password that it does not know.
const SASL_AUTHENTICATION_FAILED: i16 = 58;

/// From this version on, lengths of a produce request are written as varints.
const FLEXIBLE: i16 = 9;

/// What a request is, and what its reply is known by.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) api: i16,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
}

/// What a request stores in one partition of a topic.
pub(crate) struct Written {
    pub(crate) batch: Batch,
    /// As the topic's `max.message.bytes` counts it.
    pub(crate) bytes: usize,
    pub(crate) records: Vec<Record>,
}

/// By what brokers recognise a batch that is sent again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Batch {
    pub(crate) topic: String,
    producer: i64,
    epoch: i16,
    sequence: i32,
}

/// A record on its way.
pub(crate) struct Record {
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Bytes,
}

/// The head of a request.
pub(crate) fn head(frame: &Bytes) -> io::Result<Head> {
    let mut rest = frame.slice(4.min(frame.len())..);
    let short = |_| io::Error::other("a request without a head");
    Ok(Head {
        api: rest.try_get_i16().map_err(short)?,
        version: rest.try_get_i16().map_err(short)?,
        correlation: rest.try_get_i32().map_err(short)?,
    })
}

/// What a reply answers.
pub(crate) fn correlation(frame: &Bytes) -> i32 {
    frame.slice(4..).try_get_i32().unwrap_or(-1)
}

/// What a request stores; `None` where it cannot be read.
pub(crate) fn written(frame: &Bytes, head: Head) -> Option<Vec<Written>> {
    let is_flexible = head.version >= FLEXIBLE;
    let mut rest = frame.slice(12..);
    let client = rest.try_get_i16().ok()?;
    skip(&mut rest, usize::try_from(client).unwrap_or(0))?;
    if is_flexible {
        tags(&mut rest)?;
    }
    // The transaction, acks and the time limit.
    length(&mut rest, is_flexible, true).and_then(|bytes| skip(&mut rest, bytes))?;
    skip(&mut rest, 2 + 4)?;
    let mut written = Vec::new();
    for _ in 0..length(&mut rest, is_flexible, false)? {
        let name = length(&mut rest, is_flexible, true)?;
        let name = take(&mut rest, name)?;
        let name = String::from_utf8_lossy(&name);
        for _ in 0..length(&mut rest, is_flexible, false)? {
            skip(&mut rest, 4)?;
            let batch = length(&mut rest, is_flexible, false)?;
            written.push(batch_of(&name, take(&mut rest, batch)?)?);
            if is_flexible {
                tags(&mut rest)?;
            }
        }
        if is_flexible {
            tags(&mut rest)?;
        }
    }
    Some(written)
}

/// One batch, which is not compressed.
fn batch_of(topic: &str, mut batch: Bytes) -> Option<Written> {
    let bytes = batch.len();
    // Up to the producer's id.
    skip(&mut batch, 43)?;
    let of = Batch {
        topic: topic.to_owned(),
        producer: batch.try_get_i64().ok()?,
        epoch: batch.try_get_i16().ok()?,
        sequence: batch.try_get_i32().ok()?,
    };
    let count = batch.try_get_i32().ok()?;
    let mut records = Vec::new();
    for _ in 0..count {
        let size = usize::try_from(varint(&mut batch)?).ok()?;
        let mut record = take(&mut batch, size)?;
        skip(&mut record, 1)?;
        varint(&mut record)?;
        varint(&mut record)?;
        let key = varint(&mut record)?;
        let key = match usize::try_from(key) {
            Ok(bytes) => Some(take(&mut record, bytes)?),
            Err(_) => None,
        };
        let value = usize::try_from(varint(&mut record)?).unwrap_or(0);
        let value = take(&mut record, value)?;
        records.push(Record { key, value });
    }
    Some(Written {
        batch: of,
        bytes,
        records,
    })
}

pub(crate) fn skip(from: &mut Bytes, bytes: usize) -> Option<()> {
    take(from, bytes).map(drop)
}

pub(crate) fn take(from: &mut Bytes, bytes: usize) -> Option<Bytes> {
    (bytes <= from.len()).then(|| from.split_to(bytes))
}

/// A length as the version writes it: of a text in two bytes, of others in four, or as a
/// varint that is one more. None is 0.
fn length(from: &mut Bytes, is_flexible: bool, is_text: bool) -> Option<usize> {
    let length = match (is_flexible, is_text) {
        (true, _) => i64::try_from(unsigned(from)?).ok()? - 1,
        (false, true) => i64::from(from.try_get_i16().ok()?),
        (false, false) => i64::from(from.try_get_i32().ok()?),
    };
    Some(usize::try_from(length).unwrap_or(0))
}

fn tags(from: &mut Bytes) -> Option<()> {
    for _ in 0..unsigned(from)? {
        unsigned(from)?;
        let size = unsigned(from)?;
        skip(from, usize::try_from(size).ok()?)?;
    }
    Some(())
}

fn unsigned(from: &mut Bytes) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = from.try_get_u8().ok()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn varint(from: &mut Bytes) -> Option<i64> {
    let raw = unsigned(from)?;
    let magnitude = i64::try_from(raw >> 1).ok()?;
    Some(magnitude ^ -i64::from(raw & 1 == 1))
}

/// A reply of this content.
pub(crate) fn reply(correlation: i32, content: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u32(u32::try_from(4 + content.len()).expect("replies are small"));
    frame.put_i32(correlation);
    frame.put_slice(content);
    frame.freeze()
}

/// A reply about the protocol's versions, with the two requests of a client that says who it
/// is, and with no later version of a request than these. One that refuses the question's own
/// version stays as it is.
pub(crate) fn with_sasl(frame: &Bytes, latest: &[(i16, i16)]) -> Bytes {
    let (start, mut rest) = (&frame[8..10], frame.slice(10..));
    let (0, Ok(known)) = (frame.slice(8..10).get_i16(), rest.try_get_i32()) else {
        return frame.clone();
    };
    let mut content = BytesMut::from(start);
    content.put_i32(known + 2);
    for (api, latest) in [(SASL_HANDSHAKE, 1), (SASL_AUTHENTICATE, 0)] {
        content.put_i16(api);
        content.put_i16(0);
        content.put_i16(latest);
    }
    for _ in 0..known {
        let mut known = rest.split_to(6);
        let (api, earliest, last) = (known.get_i16(), known.get_i16(), known.get_i16());
        let bound = latest.iter().find(|(bounded, _)| *bounded == api);
        content.put_i16(api);
        content.put_i16(earliest);
        content.put_i16(bound.map_or(last, |(_, bound)| last.min(*bound)));
    }
    content.put_slice(&rest);
    reply(correlation(frame), &content)
}

/// The only mechanism there is.
pub(crate) fn handshaken(correlation: i32) -> Bytes {
    let mut content = BytesMut::new();
    content.put_i16(0);
    content.put_i32(1);
    content.put_i16(5);
    content.put_slice(b"PLAIN");
    reply(correlation, &content)
}

/// User and password of a request of [`SASL_AUTHENTICATE`].
pub(crate) fn credentials(frame: &Bytes) -> Option<(String, String)> {
    let mut rest = frame.slice(12..);
    let client = rest.try_get_i16().ok()?;
    skip(&mut rest, usize::try_from(client).unwrap_or(0))?;
    skip(&mut rest, 4)?;
    let text = String::from_utf8(rest.to_vec()).ok()?;
    let mut parts = text.split('\0').skip(1);
    Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
}

/// Whether the password is known.
pub(crate) fn authenticated(correlation: i32, is_known: bool) -> Bytes {
    let mut content = BytesMut::new();
    content.put_i16(match is_known {
        true => 0,
        false => SASL_AUTHENTICATION_FAILED,
    });
    // No text, and no bytes.
    content.put_i16(-1);
    content.put_i32(0);
    reply(correlation, &content)
}

/// A reply to a request that stored something, not to be understood.
pub(crate) fn garbled(garbage: Garbage, frame: &Bytes, head: Head) -> Bytes {
    let content = &frame[8..];
    let content = match garbage {
        Garbage::Empty => Vec::new(),
        Garbage::Html => b"<html><body>It works!</body></html>".to_vec(),
        Garbage::WrongTypes => vec![0xff; content.len()],
        Garbage::NoMessageId => without_offset(content, head),
        Garbage::Truncated => content[..content.len() / 2].to_vec(),
        other => panic!("the fixture does not play {other:?}"),
    };
    reply(head.correlation, &content)
}

/// The reply's content with no offset in the place of its first one.
fn without_offset(content: &[u8], head: Head) -> Vec<u8> {
    let at = offset_at(content, head).expect("brokers write what the proxy reads");
    let mut content = content.to_vec();
    content[at..at + 8].fill(0xff);
    content
}

/// Where the first offset begins.
fn offset_at(content: &[u8], head: Head) -> Option<usize> {
    let mut rest = Bytes::copy_from_slice(content);
    let is_flexible = head.version >= FLEXIBLE;
    if is_flexible {
        tags(&mut rest)?;
    }
    length(&mut rest, is_flexible, false)?;
    let name = length(&mut rest, is_flexible, true)?;
    skip(&mut rest, name)?;
    length(&mut rest, is_flexible, false)?;
    // Partition and error.
    skip(&mut rest, 4 + 2)?;
    Some(content.len() - rest.len())
}
