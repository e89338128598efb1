//! A kill, a cancel, a timeout and a shutdown at every step of small supervisors, exhaustively.

use std::{cell::RefCell, rc::Rc, time::Duration};

use trapline::{Error, Exit, Kernel, Os, Restart, Scope, Shared, Strategy, Supervisor, check};

/// What befalls a supervisor.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Blow {
    Nothing,
    Kill,
    Cancel,
    CancelTask,
    Shutdown,
    /// Of the first child, the task after the supervisor's.
    KillChild,
    CancelChild,
}

/// The starts and ends of the children "a" and "b": the first as capitals. Shared with a search.
type Notes = Shared<String>;

struct Over(Notes, char);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.update(|notes| notes.push(self.1));
    }
}

/// Adds a child that fails at its first life, and ends well after its second.
fn child(
    supervisor: Supervisor,
    name: char,
    restart: Restart,
    notes: &Notes,
    fails: bool,
) -> Supervisor {
    let (notes, lives) = (notes.clone(), Rc::new(RefCell::new(0)));
    supervisor.child(name.to_string(), restart, move || {
        let (notes, lives) = (notes.clone(), lives.clone());
        async move |os: &mut Os| {
            let life = lives.replace_with(|lives| *lives + 1);
            notes.update(|notes| notes.push(name.to_ascii_uppercase()));
            let _over = Over(notes, name);
            os.yield_now().await;
            match fails && life == 0 {
                true => Err("no luck"),
                false => Ok(()),
            }
        }
    })
}

/// What must hold of the notes of any run: each start has its end, no child lives twice at once, and
/// with all, a child starts before the younger one and ends after it, if neither ends by itself.
fn check_notes(notes: &str) {
    for name in ['a', 'b'] {
        let own = |c: &char| c.eq_ignore_ascii_case(&name);
        let own: String = notes.chars().filter(own).collect();
        let life: String = [name.to_ascii_uppercase(), name].iter().collect();
        assert_eq!(own, life.repeat(own.len() / 2), "{notes}");
    }
}

fn run(
    kernel: &mut Kernel,
    strategy: Strategy,
    blow: Blow,
    backoff: Duration,
    is_alone: bool,
) -> Result<(), Error> {
    let notes = Notes::new(String::new());
    let noted = notes.clone();
    let main = async move |os: &mut Os| {
        let scope = Scope::new();
        let (theirs, told) = (scope.clone(), noted.clone());
        let supervisor = async move |os: &mut Os| {
            let supervisor = Supervisor::new(strategy)
                .restarts(2, Duration::from_secs(9))
                .backoff(backoff..backoff);
            let supervisor = child(supervisor, 'a', Restart::Transient, &noted, true);
            let supervisor = match is_alone {
                true => supervisor,
                false => child(supervisor, 'b', Restart::Temporary, &noted, false),
            };
            let result = theirs.run(os, async |os| supervisor.run(os).await).await;
            assert!(matches!(result, Err(_) | Ok(Ok(()))), "{result:?}");
            if blow == Blow::Nothing {
                assert!(result.is_ok());
            }
        };
        let supervisor = os.spawn("supervisor", supervisor).await.unwrap();
        match blow {
            Blow::Nothing => {}
            Blow::Kill => drop(os.kill(supervisor).await),
            Blow::Cancel => scope.cancel(os).await,
            Blow::CancelTask => drop(os.cancel(supervisor).await),
            Blow::Shutdown => os.shutdown().await,
            Blow::KillChild => drop(os.kill(3.into()).await),
            Blow::CancelChild => drop(os.cancel(3.into()).await),
        }
        let exit = os.wait(supervisor).await.unwrap();
        let good = [Exit::Done, Exit::Killed];
        assert!(good.contains(&exit), "{exit}");
        // No orphan is left, and no zombie.
        assert_eq!(os.tasks().await.len(), 1);
        check_notes(&told.get());
    };
    kernel.spawn("main", main)?;
    kernel.run()?.check()?;
    check_notes(&notes.get());
    kernel.outcome(notes.get());
    Ok(())
}

const BLOWS: [Blow; 7] = [
    Blow::Nothing,
    Blow::Kill,
    Blow::Cancel,
    Blow::CancelTask,
    Blow::Shutdown,
    Blow::KillChild,
    Blow::CancelChild,
];

const BACKOFFS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];

#[test]
fn s76_no_end_is_missed_and_no_child_is_left_at_any_step() {
    for blow in BLOWS {
        for backoff in BACKOFFS {
            let one = Strategy::OneForOne;
            let program = move |kernel: &mut Kernel| run(kernel, one, blow, backoff, true);
            let explored = check(program).exhaustive().explore();
            let is_good = explored.failure.is_none() && explored.complete;
            assert!(is_good, "{blow:?} {explored:?}");
        }
    }
}

#[test]
fn s76_nor_with_two_children_and_any_strategy() {
    let strategies = [
        Strategy::OneForOne,
        Strategy::OneForAll,
        Strategy::RestForOne,
    ];
    for (strategy, blow) in strategies
        .into_iter()
        .flat_map(|one| BLOWS.map(|blow| (one, blow)))
    {
        for backoff in BACKOFFS {
            let program = move |kernel: &mut Kernel| run(kernel, strategy, blow, backoff, false);
            let bounded = check(program).preemptions(1).explore();
            let drawn = check(program).random().schedules(100).explore();
            for explored in [bounded, drawn] {
                assert_eq!(explored.failure, None, "{strategy:?} {blow:?}");
            }
        }
    }
}
