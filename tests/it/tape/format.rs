//! The file of a tape: damaged, truncated, of another version, and at its limit.

use std::{
    io::{Cursor, ErrorKind},
    time::Duration,
};

use proptest::{prelude::*, sample::Index};
use trapline::{
    Kernel, Os, RealWorld, SimWorld,
    tape::{self, Header, Playing, Taping},
};

use super::*;
use crate::{
    log::everything,
    record::{fuzz::fuzz, mutator::Mutator},
    support::*,
};

/// What comes of a replay of damaged bytes: as much of the log as it has, and an error.
fn damaged(bytes: &[u8], whole: &Told, clients: usize) -> String {
    let populate = |kernel: &mut Kernel| drop(spawn_echo(kernel, clients));
    let error = match play(bytes, populate) {
        Err(error) => error,
        Ok((told, error, finished)) => {
            let error = error.as_ref().and_then(|error| tape::Error::of(error));
            let same = told.log.iter().zip(&whole.log);
            let same = same.take_while(|(now, then)| now == then).count();
            // A call under way may block, where the tape has its answer no more.
            assert!(same + 4 >= told.log.len(), "{} of {}", same, told.log.len());
            match error {
                Some(error) => return error.to_string(),
                None => finished.expect_err("something is missing"),
            }
        }
    };
    error.to_string()
}

#[test]
fn what_is_on_disk_of_a_tape_replays_to_its_end() {
    let scripts = vec![(vec![Act::Send(40), Act::Read(40)], End::HalfClose); 2];
    let (told, bytes) = taped_echo(&scripts, None);
    for len in 1..bytes.len() {
        let error = damaged(&bytes[..len], &told, scripts.len());
        let ends = error.contains("ends at byte") || error.contains("asks for the end");
        assert!(ends, "at {len} of {}: {error}", bytes.len());
    }
}

#[test]
fn a_tape_that_has_more_after_its_end_is_damaged() {
    let (told, mut bytes) = taped_echo(&[(vec![Act::Send(5)], End::Close)], None);
    bytes.push(0);
    let error = damaged(&bytes, &told, 1);
    assert!(error.contains("there is more after its end"), "{error}");
}

#[test]
fn other_files_and_other_versions_are_refused() {
    let (_, mut bytes) = taped_echo(&[(vec![], End::Close)], None);
    let open = |bytes: &[u8]| {
        let world = Playing::from_reader(Cursor::new(bytes.to_vec()));
        world.expect_err("it is refused").to_string()
    };
    assert!(open(b"").contains("the file is empty"));
    assert!(open(b"GIF89a, for example").contains("no tape of trapline"));
    bytes[8] = 2;
    assert!(open(&bytes).contains("version 2 of the format, and this trapline reads version 1"));
    bytes[8] = 0;
    assert!(open(&bytes).contains("damaged at byte 8: version 0"));
}

#[test]
fn a_tape_ends_at_its_limit_and_the_run_goes_on() {
    let scripts = vec![(vec![Act::Send(90_000), Act::Read(90_000)], End::HalfClose); 2];
    let (told, bytes) = taped_echo(&scripts, Some(100_000));
    assert!(told.console.matches("left after 90000").count() == 2);
    assert!(bytes.len() <= 100_000, "{}", bytes.len());
    let error = damaged(&bytes, &told, scripts.len());
    assert!(error.contains("it had reached its limit"), "{error}");
}

#[test]
fn a_tape_is_a_file_that_one_process_writes() {
    let file = Scratch::new("locked");
    let create = || {
        let world = RealWorld::new().unwrap();
        Taping::create(world, &file.0, &Header::default(), None)
    };
    let first = create().unwrap();
    let busy = create().map(drop).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::ResourceBusy);
    drop(first);
    create().unwrap();
    // A pipe is not waited for.
    let pipe = Scratch::new("tape-pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe.0).status();
    assert!(made.unwrap().success());
    for other in ["/dev/null".as_ref(), &*pipe.0] {
        let world = RealWorld::new().unwrap();
        let refused = Taping::create(world, other, &Header::default(), None);
        let refused = refused.map(drop).unwrap_err();
        assert!(
            refused.to_string().contains("a tape is a file"),
            "{refused}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_tape_is_an_error_with_an_offset(
        flips in prop::collection::vec((any::<Index>(), 0..8_u32), 20),
    ) {
        let scripts = vec![(vec![Act::Send(40), Act::Read(40)], End::HalfClose); 2];
        let (told, bytes) = taped_echo(&scripts, None);
        for (at, bit) in flips {
            let mut bytes = bytes.clone();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let error = damaged(&bytes, &told, scripts.len());
            let is_told = ["byte", "no tape", "version"].iter().any(|word| error.contains(word));
            prop_assert!(is_told, "a flip of bit {} at {}: {}", bit, at, error);
        }
    }
}

#[test]
fn no_mutation_confuses_a_replay_under_the_fuzzer() {
    let spawn_sim = |kernel: &mut Kernel| {
        let main = async |os: &mut Os| everything(os).await;
        kernel.spawn("main", main).unwrap();
    };
    let scripts = vec![(vec![Act::Send(40), Act::Read(40)], End::HalfClose); 2];
    let tapes = [
        taped_echo(&scripts, None).1,
        tape(RealWorld::new().unwrap(), None, spawn_everything).2,
        tape(SimWorld::new(1), None, spawn_sim).2,
    ];
    let (mut opened, mut finished) = (0, 0);
    let is_short = fuzz(400, |seed| {
        let bytes = Mutator::new(seed).recording(&tapes);
        let len = bytes.len() as u64;
        let Ok(world) = Playing::from_reader(Cursor::new(bytes)) else {
            return;
        };
        opened += 1;
        let progress = world.progress();
        let (_, error) = run(Kernel::builder().world(world), |kernel| match seed % 3 {
            0 => drop(spawn_echo(kernel, scripts.len())),
            1 => spawn_everything(kernel),
            _ => spawn_sim(kernel),
        });
        let error = error.as_ref().and_then(|error| tape::Error::of(error));
        if let Some(tape::Error::Left(left)) = error {
            assert!(left.offset <= len, "{left}");
        }
        assert!(progress.offset() <= len);
        finished += u32::from(progress.finish().is_ok());
    });
    println!("{opened} were opened, and {finished} used to their end");
    assert!(
        !is_short || opened > 50 && finished > 0,
        "the entries are reached"
    );
}

#[test]
fn a_tape_whose_end_is_missing_is_truncated_and_not_left() {
    let naps = |kernel: &mut Kernel| {
        let program = async |os: &mut Os| os.sleep(Duration::from_secs(1)).await;
        kernel.spawn("naps", program).unwrap();
    };
    let (_, _, whole) = tape(SimWorld::new(1), None, naps);
    for len in whole.len() - 3..whole.len() {
        let (_, error, finished) = play(&whole[..len], naps).unwrap();
        let error = error.as_ref().map(|error| tape::Error::of(error).unwrap());
        let finished = finished.as_ref().err();
        let truncated = error.or(finished).unwrap();
        assert!(
            matches!(truncated, tape::Error::Truncated { .. }),
            "{truncated}"
        );
    }
    assert!(play(&whole, naps).unwrap().2.is_ok());
}
