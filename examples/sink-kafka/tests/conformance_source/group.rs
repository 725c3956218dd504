//! Just enough of the protocol of groups: which topics are fetched and committed, and replies in
//! the place of a broker's.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::wire::{Head, correlation, reply, skip, take};

pub(crate) const FETCH: i16 = 1;
pub(crate) const OFFSET_COMMIT: i16 = 8;
pub(crate) const JOIN_GROUP: i16 = 11;

/// The versions that are read here, the latest whose lengths are no varints.
pub(crate) const VERSIONS: &[(i16, i16)] = &[(FETCH, 11), (OFFSET_COMMIT, 7), (JOIN_GROUP, 5)];

/// A topic in a request or a reply.
pub(crate) struct Topic {
    pub(crate) name: String,
    partitions: Vec<Partition>,
}

struct Partition {
    number: i32,
    /// Of records that a reply brings.
    bytes: usize,
}

/// The topics that a request fetches or commits, or that a member wants which joins.
pub(crate) fn asked(frame: &Bytes, head: Head) -> Option<Vec<Topic>> {
    let is_read = VERSIONS.contains(&(head.api, head.version));
    assert!(is_read, "version {} of request {}", head.version, head.api);
    let mut rest = frame.slice(12..);
    text(&mut rest)?;
    if head.api == JOIN_GROUP {
        return wanted(rest);
    }
    let of_partition = match head.api {
        FETCH => {
            // Who asks, how long and how much, the isolation, and the session.
            skip(&mut rest, 4 + 4 + 4 + 4 + 1 + 4 + 4)?;
            // Its epoch, where to begin, where the log does, and how much.
            4 + 8 + 8 + 4
        }
        _ => {
            // The group, and the member with its generation.
            text(&mut rest)?;
            skip(&mut rest, 4)?;
            text(&mut rest)?;
            text(&mut rest)?;
            // The position and its epoch; a text follows.
            8 + 4
        }
    };
    let is_commit = head.api == OFFSET_COMMIT;
    topics(&mut rest, |rest| {
        let number = rest.try_get_i32().ok()?;
        skip(rest, of_partition)?;
        if is_commit {
            text(rest)?;
        }
        Some(Partition { number, bytes: 0 })
    })
}

fn wanted(mut rest: Bytes) -> Option<Vec<Topic>> {
    // The group, its times, the member, its own name, and the kind of group.
    text(&mut rest)?;
    skip(&mut rest, 4 + 4)?;
    for _ in 0..3 {
        text(&mut rest)?;
    }
    // Each strategy comes with the same topics.
    rest.try_get_i32().ok()?;
    text(&mut rest)?;
    skip(&mut rest, 4 + 2)?;
    let count = rest.try_get_i32().ok()?;
    let topic = |_| {
        let name = text(&mut rest)?;
        let partitions = Vec::new();
        Some(Topic { name, partitions })
    };
    (0..count).map(topic).collect()
}

/// The topics of a reply to a fetch, where it brings records.
pub(crate) fn brought(frame: &Bytes) -> Option<Vec<Topic>> {
    let mut rest = frame.slice(8..);
    // The throttling, the error and the session.
    skip(&mut rest, 4 + 2 + 4)?;
    let topics = topics(&mut rest, |rest| {
        let number = rest.try_get_i32().ok()?;
        // The error, and three positions.
        skip(rest, 2 + 8 + 8 + 8)?;
        for _ in 0..rest.try_get_i32().ok()? {
            skip(rest, 8 + 8)?;
        }
        skip(rest, 4)?;
        let bytes = usize::try_from(rest.try_get_i32().ok()?).unwrap_or(0);
        skip(rest, bytes)?;
        Some(Partition { number, bytes })
    })?;
    let mut all = topics.iter().flat_map(|topic| &topic.partitions);
    all.any(|partition| partition.bytes > 0).then_some(topics)
}

/// A reply with this error in the place of the records of one partition, and nothing of others.
pub(crate) fn fetch_failed(frame: &Bytes, topics: &[Topic], error: i16) -> Bytes {
    let mut content = BytesMut::new();
    content.put_i32(0);
    content.put_i16(0);
    content.put_i32(0);
    let mut is_told = false;
    put_topics(&mut content, topics, |content, partition| {
        let is_here = partition.bytes > 0 && !std::mem::replace(&mut is_told, partition.bytes > 0);
        content.put_i16(match is_here {
            true => error,
            false => 0,
        });
        for _ in 0..3 {
            content.put_i64(-1);
        }
        // No transaction, no nearer replica, and no record.
        content.put_i32(0);
        content.put_i32(-1);
        content.put_i32(0);
    });
    reply(correlation(frame), &content)
}

/// A reply that refuses all that was to be committed.
pub(crate) fn commit_failed(head: Head, topics: &[Topic], error: i16) -> Bytes {
    let mut content = BytesMut::new();
    content.put_i32(0);
    put_topics(&mut content, topics, |content, _| content.put_i16(error));
    reply(head.correlation, &content)
}

fn text(from: &mut Bytes) -> Option<String> {
    let length = from.try_get_i16().ok()?;
    let bytes = take(from, usize::try_from(length).unwrap_or(0))?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn topics(
    from: &mut Bytes,
    mut partition: impl FnMut(&mut Bytes) -> Option<Partition>,
) -> Option<Vec<Topic>> {
    let mut topics = Vec::new();
    for _ in 0..from.try_get_i32().ok()? {
        let name = text(from)?;
        let count = from.try_get_i32().ok()?;
        let partitions = (0..count).map(|_| partition(from)).collect::<Option<_>>()?;
        topics.push(Topic { name, partitions });
    }
    Some(topics)
}

fn put_topics(
    content: &mut BytesMut,
    topics: &[Topic],
    mut put: impl FnMut(&mut BytesMut, &Partition),
) {
    let count = |all: usize| i32::try_from(all).expect("requests are small");
    content.put_i32(count(topics.len()));
    for topic in topics {
        content.put_i16(i16::try_from(topic.name.len()).expect("names are short"));
        content.put_slice(topic.name.as_bytes());
        content.put_i32(count(topic.partitions.len()));
        for partition in &topic.partitions {
            content.put_i32(partition.number);
            put(content, partition);
        }
    }
}
