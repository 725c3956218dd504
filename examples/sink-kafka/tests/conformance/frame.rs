//! Frames of the protocol, whatever is in them.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Reads a frame with its length; `None` at the end of the connection.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let size = u32::from_be_bytes(length) as usize;
    let mut frame = length.to_vec();
    frame.resize(4 + size, 0);
    from.read_exact(&mut frame[4..]).await?;
    Ok(Some(frame))
}

/// Puts one port in the place of another, wherever a reply names `127.0.0.1` with it.
pub(crate) fn with_port(frame: &[u8], from: u16, to: u16) -> Vec<u8> {
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
    bytes
}
