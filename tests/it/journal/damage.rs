//! Files of journals that are not whole.

use std::{
    cell::{Cell, RefCell},
    io::{self, ErrorKind},
    rc::Rc,
};

use trapline::{Durability, Journal, Mode, Os, SimDisk, Step};

use super::{MS, add, disk, kernel, open, ran, write};

#[test]
fn what_is_no_whole_block_is_cut_and_a_strange_entry_is_left() {
    let disk = disk();
    ran(&disk, async |os: &mut Os| {
        let pair = Rc::default();
        let journal = open(os, Durability::Always, &pair).await?;
        write(os, &journal, &pair).await;
        for number in [1, 2] {
            add(&journal, &pair, number);
            journal.commit(os).await?;
        }
        journal.close(os).await;
        Ok(())
    });
    let whole = disk.files().remove("dir/journal").expect("it is there");
    // The mark of a journal comes first.
    let (half, last) = (8 + (whole.len() - 8) / 2, whole.len() - 1);
    let mut flipped = whole.clone();
    flipped[last] ^= 1;
    let long = [&u64::MAX.to_le_bytes()[..], &[0; 20]].concat();
    let cases: [(Vec<u8>, u32, usize); 9] = [
        (whole[..last].to_vec(), 1, half),
        (flipped, 1, half),
        ([&whole[..], &[0; 5000]].concat(), 2, whole.len()),
        ([&whole[..], &whole[..5]].concat(), 2, whole.len()),
        ([&whole[..], &long].concat(), 2, whole.len()),
        (whole[..20].to_vec(), 0, 8),
        (whole[..5].to_vec(), 0, 8),
        (vec![0; 5], 0, 8),
        (vec![0; 50], 0, 8),
    ];
    for (text, expected, len) in cases {
        disk.put("dir/journal", text).expect("it can be");
        ran(&disk, async move |os: &mut Os| {
            let pair = Rc::default();
            open(os, Durability::Always, &pair).await?;
            assert_eq!(pair.get(), [expected; 2]);
            Ok(())
        });
        assert_eq!(disk.files()["dir/journal"].len(), len);
    }
    disk.put("dir/journal", &whole).expect("it can be");
    ran(&disk, async |os: &mut Os| {
        let strange = |_: &[u8]| Err(io::Error::other("strange"));
        let error = Journal::open(os, "dir/journal", Durability::Always, strange).await;
        assert_eq!(error.expect_err("it is told").to_string(), "strange");
        Ok(())
    });
    assert_eq!(disk.files()["dir/journal"], whole);
}

#[test]
fn a_file_that_is_no_journal_is_left_as_it_is() {
    for text in ["a", "journey\n", "set a 1\nset b 2\n"] {
        let disk = disk();
        disk.put("dir/journal", text).expect("it can be");
        ran(&disk, async |os: &mut Os| {
            let opened = open(os, Durability::Always, &Rc::default()).await;
            let error = opened.expect_err("it is none");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            let why = "dir/journal is no journal: name another file, or move this one away";
            assert_eq!(error.to_string(), why);
            Ok(())
        });
        assert_eq!(disk.files()["dir/journal"], text.as_bytes());
    }
}

/// A journal of three blocks, and where each begins.
fn three_blocks(disk: &SimDisk) -> (Vec<u8>, [usize; 3]) {
    ran(disk, async |os: &mut Os| {
        let pair = Rc::default();
        let journal = open(os, Durability::Always, &pair).await?;
        write(os, &journal, &pair).await;
        for number in 1..=3 {
            add(&journal, &pair, number);
            journal.commit(os).await?;
        }
        journal.close(os).await;
        Ok(())
    });
    let whole = disk.files().remove("dir/journal").expect("it is there");
    let block = (whole.len() - 8) / 3;
    (whole, [8, 8 + block, 8 + 2 * block])
}

/// Wherever it is: in a length, a checksum or an entry.
#[test]
fn what_a_wrong_byte_cuts_is_kept_unless_it_is_the_last_block() {
    let disk = disk();
    let (whole, begins) = three_blocks(&disk);
    let mut all_cut = Vec::new();
    for at in 8..whole.len() {
        let mut wrong = whole.clone();
        wrong[at] ^= 0x81;
        let before = begins.into_iter().filter(|begin| *begin <= at).count() - 1;
        let begin = begins[before];
        disk.put("dir/journal", &wrong).expect("it can be");
        ran(&disk, async move |os: &mut Os| {
            let pair = Rc::default();
            open(os, Durability::Always, &pair).await?;
            assert_eq!(pair.get(), [before as u32; 2], "{at}");
            Ok(())
        });
        let files = disk.files();
        assert_eq!(files["dir/journal"], whole[..begin], "{at}");
        if begin < begins[2] {
            all_cut.extend_from_slice(&wrong[begin..]);
        }
        let kept = files.get("dir/journal.cut");
        assert!(kept.is_some_and(|kept| *kept == all_cut), "{at}");
    }
}

/// Another program may do so: it need not open the file exclusively.
#[test]
fn a_file_that_becomes_shorter_while_its_end_is_kept_is_an_error() {
    let disk = disk();
    let (mut wrong, begins) = three_blocks(&disk);
    wrong[begins[0] + 12] ^= 1;
    let mut errors = 0;
    for quarter in 0..48 {
        let disk = disk.image(1).latency(MS..=MS);
        disk.put("dir/journal", &wrong).expect("it can be");
        let (theirs, end) = (disk.clone(), wrong[begins[0]..].to_vec());
        let outcome = Rc::new(Cell::new(0));
        let told = Rc::clone(&outcome);
        ran(&disk, async move |os: &mut Os| {
            let shorten = async move |os: &mut Os| {
                let file = os.disk().open(os, "dir/journal", Mode::Write).await?;
                os.sleep_until(MS / 4 * quarter).await;
                file.truncate(os, begins[1] as u64).await
            };
            let shortener = os.spawn("shorten", shorten).await?;
            let opened = open(os, Durability::Always, &Rc::default()).await;
            os.wait(shortener).await?;
            let kept = theirs.files().remove("dir/journal.cut");
            match opened {
                Ok(_) => assert!(kept.is_none_or(|kept| kept == end), "{quarter}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                    told.set(1);
                }
            }
            Ok(())
        });
        errors += outcome.get();
    }
    assert!(errors > 0);
}

/// Blocks that are not synced are lost in any order.
#[test]
fn without_always_a_loss_of_power_may_look_like_a_wrong_byte() {
    let disk = disk();
    let theirs = disk.clone();
    let images = Rc::new(RefCell::new(Vec::new()));
    let taken = Rc::clone(&images);
    ran(&disk, async move |os: &mut Os| {
        let pair = Rc::default();
        let journal = open(os, Durability::Never, &pair).await?;
        write(os, &journal, &pair).await;
        for number in 1..=3 {
            add(&journal, &pair, number);
            journal.commit(os).await?;
            os.sleep(20 * MS).await;
        }
        *taken.borrow_mut() = (0..50).map(|seed| theirs.image(seed)).collect();
        journal.close(os).await;
        Ok(())
    });
    let mut kept = 0;
    for image in images.take() {
        ran(&image, async |os: &mut Os| {
            open(os, Durability::Never, &Rc::default()).await.map(drop)
        });
        kept += usize::from(image.files().contains_key("dir/journal.cut"));
    }
    assert!((1..50).contains(&kept), "{kept}");
}

/// More than is read, or searched, at once. Heads of long blocks that are none do not take long.
#[test]
fn what_is_cut_may_be_long() {
    for (len, word) in [
        (65 << 20, *b"abcdefgh"),
        (1 << 20, (1_u64 << 18).to_le_bytes()),
    ] {
        let disk = disk();
        let (whole, _) = three_blocks(&disk);
        let mut wrong = [&whole, &word.repeat(len / 8)[..], b"end"].concat();
        disk.put("dir/journal", &wrong).expect("it can be");
        ran(&disk, async move |os: &mut Os| {
            let pair = Rc::default();
            open(os, Durability::Always, &pair).await?;
            assert_eq!(pair.get(), [3; 2]);
            Ok(())
        });
        let files = disk.files();
        assert!(files["dir/journal.cut"] == wrong.split_off(whole.len()));
        assert_eq!(files["dir/journal"], whole);
    }
}

#[test]
fn no_loss_of_power_loses_what_is_cut() {
    let disk = disk();
    let (mut wrong, begins) = three_blocks(&disk);
    wrong[begins[0] + 12] ^= 1;
    let end = wrong[begins[0]..].to_vec();
    disk.put("dir/journal", &wrong).expect("it can be");
    let mut kernel = kernel(1, &disk);
    let main = async |os: &mut Os| open(os, Durability::Always, &Rc::default()).await.map(drop);
    kernel.spawn("main", main).expect("there is room");
    let (mut whole, mut cut) = (0, 0);
    loop {
        for image in disk.images() {
            let files = image.files();
            if files["dir/journal"] == wrong {
                whole += 1;
            } else {
                assert_eq!(files["dir/journal.cut"], end);
                assert!(wrong.starts_with(&files["dir/journal"]));
                cut += 1;
            }
            // The next open goes on with it.
            ran(&image, async |os: &mut Os| {
                open(os, Durability::Always, &Rc::default()).await.map(drop)
            });
            let files = image.files();
            assert_eq!(files["dir/journal"], wrong[..begins[0]]);
            assert!(files["dir/journal.cut"].ends_with(&end));
        }
        if kernel.step().expect("it goes on") == Step::Finished {
            break;
        }
    }
    assert!(whole > 0 && cut > 0, "{whole} {cut}");
}
