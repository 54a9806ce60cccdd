//! The signature block: the bytes that travel with a signed file, and the message that is signed.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `HOLDSIGN` |
//! | 8 | 2 | version, 1 |
//! | 10 | 1 | bytes of the publisher's name, `p` |
//! | 11 | 1 | bytes of the application's name, `a` |
//! | 12 | 4 | reserved, 0 |
//! | 16 | 32 | public key |
//! | 48 | 64 | signature |
//! | 112 | p | publisher's name |
//! | 112 + p | a | application's name |
//! | 112 + p + a | 4 | bytes of the block, 128 + p + a |
//! | 116 + p + a | 4 | reserved, 0 |
//! | 120 + p + a | 8 | `HOLDSEND` |
//!
//! Numbers are little endian. A block has a mark at each end, so that damage to one of them, or a
//! cut, does not make a signed file look unsigned.
//!
//! Invariant: one content, publisher, application and key have one block; any other byte anywhere
//! is refused.

use crate::names::{ApplicationName, NAME_BYTES_MAX, PublisherName};
use crate::publisher::{PublicKey, Publisher, PublisherKey};

pub(crate) const HEAD_MARK: [u8; 8] = *b"HOLDSIGN";
pub(crate) const END_MARK: [u8; 8] = *b"HOLDSEND";
pub(crate) const VERSION: u16 = 1;
/// Length, reserved bytes and end mark: what is read first.
pub(crate) const END_BYTES: usize = 16;
const HEAD_BYTES: usize = 112;
pub(crate) const BLOCK_BYTES_MIN: usize = HEAD_BYTES + 2 + END_BYTES;
pub(crate) const BLOCK_BYTES_MAX: usize = HEAD_BYTES + 2 * NAME_BYTES_MAX + END_BYTES;
/// What signatures are made under: a signature for another purpose would have another text.
const DOMAIN: &[u8] = b"holdfast applet signature\0";

/// What a signature is about, besides its publisher and application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    /// Length of the file without its signature.
    pub(crate) len_bytes: u64,
    /// SHA-256 of these bytes.
    pub(crate) sha256: [u8; 32],
}

/// A block that is well formed; its signature is not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) publisher: Publisher,
    pub(crate) application: ApplicationName,
    signature: [u8; 64],
}

/// Why bytes are no block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockFault {
    Damaged(&'static str),
    Newer(u16),
}

impl Block {
    pub(crate) fn sign(
        key: &PublisherKey,
        application: &ApplicationName,
        content: &Content,
    ) -> Block {
        let publisher = key.publisher();
        let signature = key.sign(&message(&publisher, application, content));
        Block { publisher, application: application.clone(), signature }
    }

    pub(crate) fn verifies(&self, content: &Content) -> bool {
        let message = message(&self.publisher, &self.application, content);
        self.publisher.key().verifies(&message, &self.signature)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let publisher = self.publisher.name().as_str().as_bytes();
        let application = self.application.as_str().as_bytes();
        let mut bytes = HEAD_MARK.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        // Names have at most 64 bytes.
        bytes.extend([publisher.len() as u8, application.len() as u8, 0, 0, 0, 0]);
        bytes.extend(self.publisher.key().to_bytes());
        bytes.extend(self.signature);
        bytes.extend(publisher);
        bytes.extend(application);
        let len_bytes = (bytes.len() + END_BYTES) as u32;
        bytes.extend(len_bytes.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(END_MARK);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Block, BlockFault> {
        let damaged = BlockFault::Damaged;
        let cut_off = damaged("it is cut off");
        let head = bytes.first_chunk::<HEAD_BYTES>().ok_or(cut_off)?;
        if head[..8] != HEAD_MARK {
            return Err(damaged("its first mark is missing"));
        }
        match u16::from_le_bytes([head[8], head[9]]) {
            VERSION => {}
            newer if newer > VERSION => return Err(BlockFault::Newer(newer)),
            _ => return Err(damaged("its version is none")),
        }
        let (publisher_bytes, application_bytes) = (usize::from(head[10]), usize::from(head[11]));
        if bytes.len() != HEAD_BYTES + publisher_bytes + application_bytes + END_BYTES {
            return Err(damaged("its length is wrong"));
        }
        let (names, end) = bytes[HEAD_BYTES..].split_at(publisher_bytes + application_bytes);
        if claimed_bytes(end) != Some(bytes.len()) || head[12..16] != [0; 4] {
            return Err(damaged("its length or a reserved field is wrong"));
        }
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let publisher = text(&names[..publisher_bytes]).map(PublisherName::parse);
        let application = text(&names[publisher_bytes..]).map(ApplicationName::parse);
        let (Some(Ok(publisher)), Some(Ok(application))) = (publisher, application) else {
            return Err(damaged("its names are not allowed"));
        };
        let mut key = [0; 32];
        key.copy_from_slice(&head[16..48]);
        let mut signature = [0; 64];
        signature.copy_from_slice(&head[48..112]);
        let key = PublicKey::from_bytes(key).ok_or(damaged("its public key is none"))?;
        Ok(Block { publisher: Publisher::new(publisher, key), application, signature })
    }
}

/// The length that the last 16 bytes of a block claim; `None` when these bytes are no such end.
pub(crate) fn claimed_bytes(end: &[u8]) -> Option<usize> {
    let end: &[u8; END_BYTES] = end.try_into().ok()?;
    let len_bytes = u32::from_le_bytes([end[0], end[1], end[2], end[3]]) as usize;
    let is_end = end[4..8] == [0; 4] && has_end_mark(end);
    (is_end && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&len_bytes)).then_some(len_bytes)
}

/// Whether bytes end as a block does.
pub(crate) fn has_end_mark(bytes: &[u8]) -> bool {
    bytes.ends_with(&END_MARK)
}

fn message(publisher: &Publisher, application: &ApplicationName, content: &Content) -> Vec<u8> {
    let mut message = DOMAIN.to_vec();
    message.extend(VERSION.to_le_bytes());
    message.extend(publisher.key().to_bytes());
    for name in [publisher.name().as_str(), application.as_str()] {
        message.push(name.len() as u8);
        message.extend(name.as_bytes());
    }
    message.extend(content.len_bytes.to_le_bytes());
    message.extend(content.sha256);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: Content = Content { len_bytes: 1000, sha256: [9; 32] };

    fn block(publisher: &str, application: &str) -> Block {
        let key = PublisherKey::from_bytes([1; 32], PublisherName::parse(publisher).unwrap());
        Block::sign(&key, &ApplicationName::parse(application).unwrap(), &CONTENT)
    }

    #[test]
    fn a_block_is_read_as_it_was_written() {
        let longest = "x".repeat(64);
        for (publisher, application, len) in
            [("A", "n", BLOCK_BYTES_MIN), (&longest, &longest, BLOCK_BYTES_MAX)]
        {
            let block = block(publisher, application);
            let bytes = block.encode();
            assert_eq!(bytes.len(), len);
            assert_eq!(Block::decode(&bytes).unwrap(), block);
            assert!(block.verifies(&CONTENT));
        }
    }

    /// The bytes of version 1, as other programs may read them.
    #[test]
    fn fields_are_where_the_format_says() {
        let bytes = block("Acme", "notes").encode();
        assert_eq!(&bytes[..16], b"HOLDSIGN\x01\x00\x04\x05\0\0\0\0");
        assert_eq!(&bytes[112..], b"Acmenotes\x89\0\0\0\0\0\0\0HOLDSEND");
        // Signatures of ed25519 are the same each time, so this pins the signed message, too.
        let start = crate::publisher::to_hex(&bytes[48..56]);
        assert_eq!(start, "844d32a2f740c085");
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let bytes = block("Acme", "notes").encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let is_good = Block::decode(&flipped).is_ok_and(|block| block.verifies(&CONTENT));
            assert!(!is_good, "bit {bit}");
        }
    }

    /// Moving a letter from one name to the other changes what is signed.
    #[test]
    fn signature_is_bound_to_its_names_and_content() {
        let good = block("Acme", "notes");
        let moved = Block { signature: good.signature, ..block("Acmen", "otes") };
        assert!(good.verifies(&CONTENT) && !moved.verifies(&CONTENT));
        assert!(!good.verifies(&Content { len_bytes: 1001, ..CONTENT }));
        assert!(!good.verifies(&Content { sha256: [8; 32], ..CONTENT }));
    }

    #[test]
    fn newer_version_is_not_called_damaged() {
        let mut bytes = block("Acme", "notes").encode();
        bytes[8] = 2;
        assert_eq!(Block::decode(&bytes), Err(BlockFault::Newer(2)));
    }
}
