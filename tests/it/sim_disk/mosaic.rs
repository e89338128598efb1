//! The program `fs-crash` of MOSAIC (Jiang, "The Hitchhiker's Guide to Operating Systems", USENIX ATC
//! 2023): a file system appends blocks to a file, and the system crashes. Its blocks are bytes of one
//! file here: no write of a byte is torn. The expected outcomes are those that MOSAIC prints.

use super::*;

/// Where the blocks are. Those of the file follow.
const INODE: u64 = 0;
const USED: u64 = 1;
const FIRST: u64 = 2;

const OLD: u8 = 1;
const NEW: u8 = 2;

/// The state before the crash: a file of one block is synced, and its blocks up to `n` are written.
async fn append_blocks(os: &mut Os, n: u64) -> io::Result<()> {
    let blocks = os.disk().open(os, "blocks", Mode::Write).await?;
    os.disk().sync_dir(os, ".").await?;
    for block in [INODE, USED, FIRST] {
        blocks.write_at(os, &[OLD], block).await?;
    }
    blocks.sync(os).await?;
    for block in 0..FIRST + n {
        blocks.write_at(os, &[NEW], block).await?;
    }
    Ok(())
}

/// What the recovery prints. As printed in the paper's artifact the new inode names no block, since the
/// `f` of a Python string is missing there.
fn display(blocks: &[u8], n: u64, as_printed: bool) -> String {
    let block = |at: u64| *blocks.get(at as usize).unwrap_or(&0);
    let numbers = (1..=n).map(|number| match as_printed {
        true => "'#{x}'".to_string(),
        false => format!("'#{number}'"),
    });
    let all = format!("[{}]", numbers.collect::<Vec<_>>().join(", "));
    let of = |at, old: &str, new: String| if block(at) == OLD { old.into() } else { new };
    let inode = of(INODE, "i [#1]", format!("i [{all}]"));
    let used = of(USED, "#1", all);
    let mut text = format!("{inode}; used: {used} | ");
    for number in 1..=n {
        if inode.contains(&format!("#{number}")) {
            text += &match block(FIRST + number - 1) {
                OLD => format!("#{number} (old) "),
                NEW => format!("#{number} (new) "),
                _ => "None ".into(),
            };
        }
    }
    text
}

fn outcomes(n: u64, as_printed: bool) -> (usize, BTreeSet<String>) {
    let disk = ran(async move |os: &mut Os| append_blocks(os, n).await);
    let images = left(&disk);
    let texts = images
        .iter()
        .map(|files| display(&files["blocks"], n, as_printed));
    (images.len(), texts.collect())
}

#[test]
fn s92_the_outcomes_of_mosaics_fs_crash_are_reached_exactly() {
    let printed = [
        "i [#1]; used: #1 | #1 (new) ",
        "i [#1]; used: #1 | #1 (old) ",
        "i [#1]; used: ['#{x}', '#{x}'] | #1 (new) ",
        "i [#1]; used: ['#{x}', '#{x}'] | #1 (old) ",
        "i [['#{x}', '#{x}']]; used: #1 | ",
        "i [['#{x}', '#{x}']]; used: ['#{x}', '#{x}'] | ",
    ];
    let expected: BTreeSet<String> = printed.map(String::from).into();
    assert_eq!(outcomes(2, true), (16, expected));
    let mended = [
        "i [#1]; used: #1 | #1 (new) ",
        "i [#1]; used: #1 | #1 (old) ",
        "i [#1]; used: ['#1', '#2'] | #1 (new) ",
        "i [#1]; used: ['#1', '#2'] | #1 (old) ",
        "i [['#1', '#2']]; used: #1 | #1 (new) #2 (new) ",
        "i [['#1', '#2']]; used: #1 | #1 (new) None ",
        "i [['#1', '#2']]; used: #1 | #1 (old) #2 (new) ",
        "i [['#1', '#2']]; used: #1 | #1 (old) None ",
        "i [['#1', '#2']]; used: ['#1', '#2'] | #1 (new) #2 (new) ",
        "i [['#1', '#2']]; used: ['#1', '#2'] | #1 (new) None ",
        "i [['#1', '#2']]; used: ['#1', '#2'] | #1 (old) #2 (new) ",
        "i [['#1', '#2']]; used: ['#1', '#2'] | #1 (old) None ",
    ];
    let expected: BTreeSet<String> = mended.map(String::from).into();
    assert_eq!(outcomes(2, false), (16, expected));
    // The states of its disk, and its outcomes, as printed and mended.
    for (n, states, mended) in [(4, 64, 36), (8, 1024, 516)] {
        let count = |as_printed| {
            let (images, texts) = outcomes(n, as_printed);
            (images, texts.len())
        };
        assert_eq!(count(true), (states, 6), "{n} blocks");
        assert_eq!(count(false), (states, mended), "{n} blocks");
    }
}

#[test]
fn s92_crashes_of_a_run_reach_the_outcomes_of_mosaics_fs_crash() {
    let (_, expected) = outcomes(2, false);
    let mut reached = BTreeSet::new();
    for seed in 0..2000 {
        let mut kernel = Kernel::simulated(seed);
        let net = kernel.net();
        let writer = async |os: &mut Os| append_blocks(os, 2).await;
        kernel.spawn_on("server", "writer", writer).unwrap();
        kernel.run().unwrap().check().unwrap();
        net.crash("server").unwrap();
        net.restart("server").unwrap();
        kernel.run().unwrap();
        let reader = async |os: &mut Os| {
            let blocks = os.disk().open(os, "blocks", Mode::Read).await?;
            let mut buf = [0; 4];
            let n = blocks.read_at(os, &mut buf, 0).await?;
            write!(os, "{}", display(&buf[..n], 2, false));
            io::Result::Ok(())
        };
        kernel.spawn_on("server", "reader", reader).unwrap();
        kernel.run().unwrap().check().unwrap();
        reached.insert(kernel.take_console());
        if reached == expected {
            return;
        }
        assert!(reached.is_subset(&expected), "{reached:?}");
    }
    panic!("only {reached:?}");
}
