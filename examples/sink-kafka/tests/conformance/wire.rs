//! Just enough of the protocol: the head of requests, and the records of those that store
//! something.

use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

pub(crate) const PRODUCE: i16 = 0;
pub(crate) const METADATA: i16 = 3;

/// From this version on, lengths of a produce request are written as varints.
const FLEXIBLE: i16 = 9;

/// Reads a frame with its length; `None` at the end of the connection.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Bytes>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let size = u32::from_be_bytes(length) as usize;
    let mut frame = BytesMut::from(&length[..]);
    frame.resize(4 + size, 0);
    from.read_exact(&mut frame[4..]).await?;
    Ok(Some(frame.freeze()))
}

/// What a request is, and what its reply is known by.
pub(crate) struct Head {
    pub(crate) api: i16,
    version: i16,
    pub(crate) correlation: i32,
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

/// The topics and records of a request that stores something; `None` where it cannot be
/// read.
pub(crate) fn records(frame: &Bytes, head: &Head) -> Option<Vec<(String, Vec<Record>)>> {
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
    let mut topics = Vec::new();
    for _ in 0..length(&mut rest, is_flexible, false)? {
        let name = length(&mut rest, is_flexible, true)?;
        let name = take(&mut rest, name)?;
        let mut records = Vec::new();
        for _ in 0..length(&mut rest, is_flexible, false)? {
            skip(&mut rest, 4)?;
            let batch = length(&mut rest, is_flexible, false)?;
            records.extend(batch_of(take(&mut rest, batch)?)?);
            if is_flexible {
                tags(&mut rest)?;
            }
        }
        if is_flexible {
            tags(&mut rest)?;
        }
        topics.push((String::from_utf8_lossy(&name).into_owned(), records));
    }
    Some(topics)
}

/// The records of one batch, which is not compressed.
fn batch_of(mut batch: Bytes) -> Option<Vec<Record>> {
    // Up to the count of records.
    skip(&mut batch, 57)?;
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
    Some(records)
}

fn skip(from: &mut Bytes, bytes: usize) -> Option<()> {
    take(from, bytes).map(drop)
}

fn take(from: &mut Bytes, bytes: usize) -> Option<Bytes> {
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

/// Puts one port in the place of another, wherever a reply names `127.0.0.1` with it.
pub(crate) fn with_port(frame: &Bytes, from: u16, to: u16) -> Bytes {
    let address = |port: u16| [b"127.0.0.1" as &[u8], &u32::from(port).to_be_bytes()].concat();
    let (known, other) = (address(from), address(to));
    let mut bytes = frame.to_vec();
    let mut at = 0;
    while at + known.len() <= bytes.len() {
        if bytes[at..].starts_with(&known) {
            bytes[at..at + known.len()].copy_from_slice(&other);
        }
        at += 1;
    }
    bytes.into()
}
