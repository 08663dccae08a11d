//! Frames: a length of 32 bits, big-endian, not counting itself, then so many bytes.

use std::io::{self, ErrorKind, Read};

/// `None` at the end of the input. A length outside of `bytes` is `InvalidData`, an end in the middle `UnexpectedEof`.
pub fn read(input: &mut impl Read, bytes: std::ops::RangeInclusive<usize>) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if !bytes.contains(&length) {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let mut frame = vec![0; length];
    input.read_exact(&mut frame)?;
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_input_is_the_end_and_an_absurd_length_an_error() {
        assert!(read(&mut &b""[..], 1..=8).expect("ends").is_none());
        assert_eq!(read(&mut &[0, 0, 0, 2, 7, 8][..], 1..=8).expect("reads"), Some(vec![7, 8]));
        assert!(read(&mut &[0, 0, 0, 0][..], 1..=8).is_err());
        assert!(read(&mut &[255, 255, 255, 255, 0][..], 1..=8).is_err());
        assert!(read(&mut &[0, 0, 0, 2, 7][..], 1..=8).is_err());
    }
}
