//! Lets DuckDB 1.2 to 1.4.1 open the copy of a store's file.
//!
//! DuckDB keeps what a file holds in chains of parts, 64 of them to a block, each beginning with the place of the next
//! one. A checkpoint leaves the parts of what did not change where they are, and the last of them still names the one
//! that stood behind it then. Nobody reads on there, but DuckDB before 1.4.2 looks that place up as soon as it comes to
//! the part, and refuses the file where the place's block is no longer one of parts. In the copy such a part becomes the
//! end of its chain, which it is.
//!
//! A checkpoint that writes all parts anew (`experimental_metadata_reuse = false`) leaves none of them, and costs a
//! store of a million cases more than a second of CPU for each change.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Where blocks begin: behind a header that is written once, and two that take turns.
const HEADER_BYTES: u64 = 4096;
const BLOCKS_AT: u64 = 3 * HEADER_BYTES;
/// A header and a block begin with the checksum of what follows.
const CHECKSUM_BYTES: usize = 8;
const PARTS: usize = 64;
/// The place of the next part where there is none.
const NONE: u64 = u64::MAX;
/// A part's number within its block stands in the upper byte of its place.
const BLOCK_OF_PLACE: u64 = u64::MAX >> 8;

/// Ends each chain in `copy` that leads out of the blocks of parts. `store` has the same bytes: it is what is read, since
/// its parts have just been written and are in memory still. Returns how many chains there were.
///
/// # Errors
/// Those of reading and writing, and `InvalidData` where the file is not as this DuckDB writes it.
pub(super) fn end_chains(store: &File, copy: &File) -> io::Result<usize> {
    let Some(layout) = Layout::of(store)? else { return Ok(0) };
    let blocks = layout.blocks_of_parts(store)?;
    let known: BTreeSet<u64> = blocks.iter().map(|block| block.id).collect();
    let mut content = vec![0; layout.block_bytes];
    let mut ended = 0;
    for block in &blocks {
        let at = layout.place(block.id)?;
        store.read_exact_at(&mut content, at)?;
        let mut sum = word(&content, 0);
        let mut ends = Vec::new();
        for part in (0..PARTS).filter(|part| block.free & (1 << part) == 0) {
            let next_at = CHECKSUM_BYTES + part * layout.part_bytes;
            let next = word(&content, next_at);
            if next != NONE && !known.contains(&(next & BLOCK_OF_PLACE)) {
                ends.push(at + next_at as u64);
                sum ^= weighed(next) ^ weighed(NONE);
            }
        }
        if ends.is_empty() {
            continue;
        }
        if word(&content, 0) != checksum(&content[CHECKSUM_BYTES..]) {
            return Err(unlike(&format!("block {} has another checksum", block.id)));
        }
        for end in &ends {
            copy.write_all_at(&NONE.to_le_bytes(), *end)?;
        }
        copy.write_all_at(&sum.to_le_bytes(), at)?;
        ended += ends.len();
    }
    Ok(ended)
}

/// A block of parts, and a bit for each that is free.
struct Block {
    id: u64,
    free: u64,
}

/// What the header in force says.
struct Layout {
    block_bytes: usize,
    part_bytes: usize,
    /// Blocks that the file has.
    blocks: u64,
    /// The place of the first part that lists the blocks.
    list: u64,
}

impl Layout {
    /// `None` where a file has no checkpoint yet.
    fn of(store: &File) -> io::Result<Option<Layout>> {
        let mut headers = [0; BLOCKS_AT as usize];
        store.read_exact_at(&mut headers, 0)?;
        let header = |n: usize| &headers[n * HEADER_BYTES as usize + CHECKSUM_BYTES..];
        if !headers[CHECKSUM_BYTES..].starts_with(b"DUCK") {
            return Err(unlike("it does not begin as a DuckDB file"));
        }
        // Each has its number, where its catalog and its list of blocks are, how many blocks there are and how large.
        let latest = if word(header(1), 0) > word(header(2), 0) { header(1) } else { header(2) };
        let field = |n: usize| word(latest, n * 8);
        let (list, blocks, block_bytes) = (field(2), field(3), field(4));
        if list == NONE {
            return Ok(None);
        }
        let block_bytes = usize::try_from(block_bytes)
            .ok()
            .filter(|bytes| (1 << 14..=1 << 18).contains(bytes) && bytes.is_power_of_two())
            .ok_or_else(|| unlike(&format!("a block of it has {block_bytes} bytes")))?;
        let part_bytes = (block_bytes - CHECKSUM_BYTES) / PARTS / 8 * 8;
        Ok(Some(Layout { block_bytes, part_bytes, blocks, list }))
    }

    /// Where a block is in the file.
    fn place(&self, block: u64) -> io::Result<u64> {
        if block >= self.blocks {
            return Err(unlike(&format!("it has {} blocks, and {block} is named", self.blocks)));
        }
        Ok(BLOCKS_AT + block * self.block_bytes as u64)
    }

    /// The list of a file's blocks: first those that are free, then those that several segments share, then those of
    /// parts.
    fn blocks_of_parts(&self, store: &File) -> io::Result<Vec<Block>> {
        let mut list = Chain { store, layout: self, next: self.list, part: Vec::new(), parts: 0 };
        let free = list.number()?;
        list.pass(free, 8)?;
        let shared = list.number()?;
        list.pass(shared, 12)?;
        let blocks = list.number()?;
        (0..blocks).map(|_| Ok(Block { id: list.number()?, free: list.number()? })).collect()
    }
}

/// A chain that is read from its first part on.
struct Chain<'f> {
    store: &'f File,
    layout: &'f Layout,
    /// The place of the part behind [`Chain::part`].
    next: u64,
    /// What is left of a part, the first byte last.
    part: Vec<u8>,
    /// Parts that were read.
    parts: u64,
}

impl Chain<'_> {
    fn byte(&mut self) -> io::Result<u8> {
        loop {
            if let Some(byte) = self.part.pop() {
                return Ok(byte);
            }
            self.read_part()?;
        }
    }

    fn read_part(&mut self) -> io::Result<()> {
        self.parts += 1;
        if self.next == NONE || self.parts > self.layout.blocks * PARTS as u64 {
            return Err(unlike("its list of blocks has no end"));
        }
        let part = usize::try_from(self.next >> 56).map_err(io::Error::other)?;
        if part >= PARTS {
            return Err(unlike(&format!("a block has {PARTS} parts, and {part} is named")));
        }
        let block = self.layout.place(self.next & BLOCK_OF_PLACE)?;
        let mut content = vec![0; self.layout.part_bytes];
        let at = block + (CHECKSUM_BYTES + part * self.layout.part_bytes) as u64;
        self.store.read_exact_at(&mut content, at)?;
        self.next = word(&content, 0);
        self.part = content.split_off(8);
        self.part.reverse();
        Ok(())
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    /// Passes over so many entries of so many bytes.
    fn pass(&mut self, entries: u64, bytes: u64) -> io::Result<()> {
        (0..entries.saturating_mul(bytes)).try_for_each(|_| self.byte().map(drop))
    }
}

/// A word of 8 bytes of a file, from an offset on.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// What a word adds to its block's checksum.
fn weighed(word: u64) -> u64 {
    word.wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Of words: a block's content is made of nothing else.
fn checksum(content: &[u8]) -> u64 {
    content.chunks_exact(8).fold(5381, |sum, part| sum ^ weighed(word(part, 0)))
}

fn unlike(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use duckdb::Connection;

    use super::*;

    /// Parts of a file that name a block that has none.
    fn dangling(path: &Path) -> usize {
        let file = File::open(path).unwrap();
        let layout = Layout::of(&file).unwrap().unwrap();
        let blocks = layout.blocks_of_parts(&file).unwrap();
        let known: BTreeSet<u64> = blocks.iter().map(|block| block.id).collect();
        let mut content = vec![0; layout.block_bytes];
        let mut found = 0;
        for block in &blocks {
            file.read_exact_at(&mut content, layout.place(block.id).unwrap()).unwrap();
            assert_eq!(
                word(&content, 0),
                checksum(&content[CHECKSUM_BYTES..]),
                "block {}",
                block.id
            );
            found += (0..PARTS)
                .filter(|part| block.free & (1 << part) == 0)
                .map(|part| word(&content, CHECKSUM_BYTES + part * layout.part_bytes))
                .filter(|next| *next != NONE && !known.contains(&(next & BLOCK_OF_PLACE)))
                .count();
        }
        found
    }

    /// Grows a file by row groups, of which the first stay as they are, until a chain leads out.
    fn grown(path: &Path) -> Connection {
        let config = duckdb::Config::default().with("default_block_size", "16384").unwrap();
        let conn = Connection::open_with_flags(path, config).unwrap();
        let columns: Vec<String> = (0..60).map(|n| format!("range + {n} AS c{n}")).collect();
        let rows = format!("SELECT {} FROM range(3000)", columns.join(", "));
        conn.execute_batch(&format!("CREATE TABLE t AS {rows}; CHECKPOINT")).unwrap();
        for _ in 0..40 {
            conn.execute_batch(&format!(
                "INSERT INTO t {rows}; CHECKPOINT; \
                 DELETE FROM t WHERE rowid >= (SELECT max(rowid) - 100 FROM t); CHECKPOINT"
            ))
            .unwrap();
            if dangling(path) > 0 {
                return conn;
            }
        }
        panic!("no chain of this DuckDB leads out: this file is not needed any more");
    }

    #[test]
    fn no_chain_of_the_copy_leads_out_and_its_rows_are_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (store, copy) = (folder.path().join("store"), folder.path().join("copy"));
        let conn = grown(&store);
        let content = "SELECT (count(*), sum(hash(t)), min(c0), max(c59))::VARCHAR FROM t";
        let expected: String = conn.query_row(content, [], |row| row.get(0)).unwrap();
        std::fs::copy(&store, &copy).unwrap();
        let before = dangling(&copy);
        let writable = File::options().write(true).open(&copy).unwrap();
        let ended = end_chains(&File::open(&store).unwrap(), &writable).unwrap();
        assert_eq!((ended, dangling(&copy)), (before, 0));
        let found: String =
            Connection::open(&copy).unwrap().query_row(content, [], |row| row.get(0)).unwrap();
        assert_eq!(found, expected);
        // Where none leads out, nothing is written.
        let read_only = File::open(&copy).unwrap();
        assert_eq!(end_chains(&read_only, &read_only).unwrap(), 0);
    }

    #[test]
    fn what_is_no_such_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let file = File::open(&path).unwrap();
        let error = end_chains(&file, &file).unwrap_err();
        assert_eq!(error.to_string(), "it does not begin as a DuckDB file");
        std::fs::write(&path, "short").unwrap();
        assert!(end_chains(&file, &file).is_err());
    }
}
