//! Histories: verdicts, windows, and what a search makes of them.

mod brute;

use std::{collections::BTreeSet, time::Duration};

use brute::{Op, explains, right_answers};
use trapline::{
    Error, Kernel, Os, Shared, check,
    linear::{History, Model, Window},
    sched::Draws,
    sync::Mutex,
};

use crate::support::*;

const MODELS: [fn() -> Model; 4] = [Model::register, Model::counter, Model::map, Model::queue];

/// A history of operations that come one after another.
fn sequence(model: Model, operations: &[(&str, &str)]) -> Result<(), Window> {
    let history = History::new(model);
    for (input, answer) in operations {
        let operation = history.called(tid(1), *input);
        history.returned(operation, answer);
    }
    history.check()
}

#[test]
fn a_model_answers_as_its_documentation_says() {
    let all: [&[(&str, &str)]; 4] = [
        &[
            ("get", "none"),
            ("cas 1 2", "false"),
            ("put a b", "ok"),
            ("get", "a b"),
            ("put 1", "ok"),
            ("cas 1 2", "true"),
            ("get", "2"),
        ],
        &[
            ("get", "0"),
            ("add 3", "3"),
            ("add -5", "-2"),
            ("add 9223372036854775807", "9223372036854775805"),
            ("add 3", "overflow"),
            ("get", "9223372036854775805"),
        ],
        &[
            ("get x", "none"),
            ("put x 1", "ok"),
            ("get y", "none"),
            ("add x 2", "3"),
            ("add y 2", "2"),
            ("cas x 3 a", "true"),
            ("cas y 3 a", "false"),
            ("add x 1", "error"),
            ("remove x", "true"),
            ("remove x", "false"),
            ("get x", "none"),
            ("get y", "2"),
        ],
        &[
            ("get", "none"),
            ("put a", "ok"),
            ("put b", "ok"),
            ("get", "a"),
            ("get", "b"),
            ("get", "none"),
        ],
    ];
    for (model, operations) in MODELS.iter().zip(all) {
        sequence(model(), operations).unwrap();
        // A wrong answer is found wherever it is.
        for wrong in 0..operations.len() {
            let mut operations = operations.to_vec();
            operations[wrong].1 = "wrong";
            let window = sequence(model(), &operations).expect_err("it is wrong");
            let unexplained = window.unexplained().expect("it is decided");
            assert_eq!(unexplained.input, operations[wrong].0);
            assert_eq!(unexplained.answer.as_deref(), Some("wrong"));
        }
    }
}

#[test]
fn what_is_no_operation_is_named_with_what_the_model_takes() {
    for (model, input, usage) in [
        (MODELS[0], "got", "a register takes put V, get and cas A B"),
        (
            MODELS[0],
            "cas 1",
            "a register takes put V, get and cas A B",
        ),
        (MODELS[1], "add x", "a counter takes add N and get"),
        (MODELS[2], "get", "a map takes put KEY VALUE, get KEY"),
        (MODELS[2], "put x", "a map takes put KEY VALUE, get KEY"),
        (MODELS[3], "put", "a queue takes put V and get"),
        (MODELS[3], "", "a queue takes put V and get"),
    ] {
        let window = sequence(model(), &[(input, "ok")]).expect_err("it is none");
        assert!(window.unexplained().is_none());
        let expected =
            format!("the model does not know {input:?}, an operation of task 1: {usage}");
        let window = window.to_string();
        assert!(window.starts_with(&expected), "{window}");
    }
}

/// What an operation of a small history asks, and what it is answered by a real object or by chance.
fn small(draws: &mut Draws, model: usize) -> (String, String) {
    let mut value = |most| draws.below(most).to_string();
    let key = ["x", "y"][draws_below(&mut value)];
    let (a, b) = (value(2), value(2));
    let inputs = match model {
        0 => vec![format!("put {a}"), "get".into(), format!("cas {a} {b}")],
        1 => vec![format!("add {}", b.replace('0', "2")), "get".into()],
        2 => vec![
            format!("put {key} {a}"),
            format!("get {key}"),
            format!("remove {key}"),
            format!("cas {key} {a} {b}"),
            format!("add {key} 1"),
        ],
        _ => vec![format!("put {a}"), "get".into()],
    };
    let input = inputs[value(inputs.len() as u64).parse::<usize>().unwrap()].clone();
    let answers = match input.split(' ').next().unwrap() {
        "put" => vec!["ok"],
        "cas" | "remove" => vec!["true", "false"],
        "add" => vec!["1", "2", "3"],
        _ => vec!["none", "0", "1", "2"],
    };
    let answer = answers[value(answers.len() as u64).parse::<usize>().unwrap()];
    (input, answer.to_string())
}

fn draws_below(value: &mut impl FnMut(u64) -> String) -> usize {
    value(2).parse().unwrap()
}

/// Draws a history of up to three tasks and six operations. Some never return.
fn drawn(draws: &mut Draws, model: usize) -> Vec<Op> {
    let mut operations: Vec<Op> = Vec::new();
    let mut open: [Option<usize>; 3] = [None; 3];
    let mut event = 0;
    for _ in 0..2 + draws.below(12) {
        let task = draws.below(3) as usize;
        match open[task] {
            Some(_) if draws.below(12) == 0 => {
                open[task] = None;
                continue;
            }
            Some(at) => {
                operations[at].returned = Some(event);
                open[task] = None;
            }
            None if operations.len() < 6 => {
                let (input, answer) = small(draws, model);
                open[task] = Some(operations.len());
                operations.push(Op {
                    task,
                    input,
                    answer,
                    called: event,
                    returned: None,
                });
            }
            None => continue,
        }
        event += 1;
    }
    operations
}

/// Gives the operations the answers of some order, if there is one that fits their times.
fn answer_in_order(draws: &mut Draws, operations: &mut [Op], model: usize) {
    // Each takes effect at a moment between its call and its return.
    let mut moments: Vec<(u64, usize)> = operations
        .iter()
        .enumerate()
        .map(|(at, op)| {
            let end = op.returned.unwrap_or(op.called + 4);
            let from = 10 * op.called as u64;
            (
                from + 1 + draws.below(10 * (end - op.called) as u64 - 1),
                at,
            )
        })
        .collect();
    moments.sort_unstable();
    let mut state = brute::State::default();
    for (_, at) in moments {
        operations[at].answer = state.step(model, &operations[at].input);
    }
}

fn history_of(operations: &[Op], model: Model) -> History {
    let history = History::new(model);
    let mut events: Vec<(usize, usize, bool)> = Vec::new();
    for (at, op) in operations.iter().enumerate() {
        events.push((op.called, at, false));
        events.extend(op.returned.map(|event| (event, at, true)));
    }
    events.sort_unstable();
    let mut numbers = vec![0; operations.len()];
    for (_, at, returns) in events {
        let op = &operations[at];
        match returns {
            true => history.returned(numbers[at], &op.answer),
            false => numbers[at] = history.called(tid(op.task as u64 + 1), &*op.input),
        }
    }
    history
}

/// Against all orders, one by one, with a second implementation of each model.
#[test]
fn verdicts_are_those_of_an_enumeration_of_all_orders() {
    let mut counts = [[0; 2]; 4];
    let mut draws = Draws::new(7);
    for number in 0..8000 {
        let model = number % 4;
        let mut operations = drawn(&mut draws, model);
        if operations.is_empty() {
            continue;
        }
        if draws.below(2) == 0 {
            answer_in_order(&mut draws, &mut operations, model);
            if draws.below(2) == 0 {
                let wrong = draws.below(operations.len() as u64) as usize;
                operations[wrong].answer = small(&mut draws, model).1;
            }
        }
        let expected = explains(&operations, model);
        let found = history_of(&operations, MODELS[model]()).check();
        assert_eq!(found.is_ok(), expected, "{operations:?}\n{found:?}");
        counts[model][usize::from(expected)] += 1;
        if let Err(window) = found {
            is_smallest(&window, &operations, model);
        }
    }
    assert!(
        counts.iter().flatten().all(|count| *count > 300),
        "{counts:?}"
    );
}

/// The operations up to the return that is not explained have no order. Before it, they have one.
fn is_smallest(window: &Window, operations: &[Op], model: usize) {
    let unexplained = window.unexplained().expect("it is decided");
    let end = unexplained.returned.expect("only an answer is unexplained");
    // Another key's operations have no part in it.
    let key = |input: &str| input.split(' ').nth(1).map(str::to_string);
    let is_beside = |op: &Op| model == 2 && key(&op.input) != key(&unexplained.input);
    // What returns later is open.
    let cut = |is_there: &dyn Fn(usize) -> bool| -> Vec<Op> {
        let called = operations.iter().filter(|op| op.called < end);
        let its = called.filter(|op| !is_beside(op)).cloned();
        its.map(|op| Op {
            returned: op.returned.filter(|event| is_there(*event)),
            ..op
        })
        .collect()
    };
    let until = cut(&|event| event <= end);
    assert!(!explains(&until, model), "{window}");
    assert!(explains(&cut(&|event| event < end), model), "{window}");
    let text = window.to_string();
    let (_, told) = text
        .split_once("  it would be ")
        .expect("an answer is right");
    let told: BTreeSet<String> = told
        .lines()
        .next()
        .unwrap()
        .split(" or ")
        .map(Into::into)
        .collect();
    let right = right_answers(&until, model, unexplained.called);
    assert!(
        told == right || told.len() == 8 && told.is_subset(&right),
        "{text}: {right:?}"
    );
    assert!(window.operations().iter().all(|op| op.called < end));
    assert!(window.to_string().contains("it would be"), "{window}");
    let svg = window.svg();
    assert_eq!(svg.matches("<rect").count(), window.operations().len());
    assert_eq!(svg.matches("class=\"bad\"").count(), 1);
}

/// The histories of etcd with which Porcupine tests itself, and its verdicts: the facts in
/// `test_data/jepsen` of <https://github.com/anishathalye/porcupine> (MIT, Anish Athalye). A line is the
/// number of a log, the verdict, and the events: a letter for the process, then `r` for a read, `w` and a
/// value, or `c` and two for a compare-and-set; or the answer: `=` and a value or `-`, `+`, `x` for a
/// compare-and-set that has failed, or `?`.
#[test]
fn verdicts_are_those_of_porcupine_on_its_own_histories() {
    let (mut count, mut linear) = (0, 0);
    for line in include_str!("linear/etcd.txt").lines() {
        let [number, verdict, events] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let history = history_of_etcd(events);
        let found = history.check();
        assert_eq!(found.is_ok(), verdict == "ok", "log {number}: {found:?}");
        count += 1;
        linear += usize::from(found.is_ok());
    }
    assert_eq!((count, linear), (102, 23));
}

fn history_of_etcd(events: &str) -> History {
    let history = History::new(Model::register());
    let mut open = std::collections::BTreeMap::new();
    let mut letters = events.chars();
    while let Some(process) = letters.next() {
        let mut next = || letters.next().expect("the event goes on");
        let task = tid(u64::from(process as u32));
        let (input, answer) = match next() {
            'r' => ("get".to_string(), None),
            'w' => (format!("put {}", next()), None),
            'c' => (format!("cas {} {}", next(), next()), None),
            '=' => match next() {
                '-' => (String::new(), Some("none".to_string())),
                value => (String::new(), Some(value.to_string())),
            },
            '+' => (String::new(), Some("+".to_string())),
            'x' => (String::new(), Some("false".to_string())),
            _ => (String::new(), Some("?".to_string())),
        };
        match answer {
            None => {
                let is_put = input.starts_with("put");
                open.insert(process, (history.called(task, input), is_put));
            }
            Some(answer) => {
                let (operation, is_put) = open.remove(&process).expect("it was called");
                let answer = match (&*answer, is_put) {
                    ("+", true) => "ok".to_string(),
                    ("+", false) => "true".to_string(),
                    _ => answer,
                };
                history.returned(operation, answer);
            }
        }
    }
    history
}

/// The histories of key-value servers under one, ten and fifty clients with which Porcupine tests itself:
/// the facts in its `test_data/kv`. A line is a name, the verdict, and the events: the process, then `g` and a
/// key for a get, `p` or `a` with a key and a value for a put or an append; or `=` and the answer. A value
/// is a list of process and number, each of which stands for `x PROCESS NUMBER y`.
#[test]
fn verdicts_are_those_of_porcupine_on_its_histories_of_key_value_servers() {
    let mut verdicts = Vec::new();
    for line in include_str!("linear/kv.txt").lines() {
        let [name, verdict, events] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let found = history_of_kv(events).check();
        if let Err(window) = &found {
            assert!(window.unexplained().is_some(), "{name}: {window}");
        }
        assert_eq!(found.is_ok(), verdict == "ok", "{name}: {found:?}");
        verdicts.push(found.is_ok());
    }
    assert_eq!(verdicts, [true, false, true, false, true, false]);
}

fn history_of_kv(events: &str) -> History {
    let model = Model::new(String::new(), |value: &mut String, input: &str| {
        match *input.split(' ').collect::<Vec<_>>() {
            ["get", _] => return Some(value.clone()),
            ["put", _, new] => *value = new.to_string(),
            ["append", _, more] => value.push_str(more),
            _ => return None,
        }
        Some(String::new())
    });
    let key = |input: &str| input.split(' ').nth(1).unwrap_or_default().to_string();
    let history = History::new(model.by_key(key));
    let mut open = std::collections::BTreeMap::new();
    for event in events.split(' ') {
        let at = event.find(|c: char| !c.is_ascii_digit()).expect("a kind");
        let (process, rest) = event.split_at(at);
        // Each value of a list ends, so that appended lists are lists.
        let list = |text: &str| {
            text.split_inclusive(',').fold(String::new(), |all, one| {
                let one = one.trim_end_matches(',');
                all + one + ","
            })
        };
        let (kind, rest) = rest.split_at(1);
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        let input = match kind {
            "g" => format!("get {key}"),
            "p" => format!("put {key} {}", list(value)),
            "a" => format!("append {key} {}", list(value)),
            _ => {
                let operation = open.remove(process).expect("it was called");
                history.returned(operation, list(rest));
                continue;
            }
        };
        let task = tid(process.parse().expect("a number"));
        open.insert(process, history.called(task, input));
    }
    assert!(open.is_empty());
    history
}

#[test]
fn an_operation_without_a_return_may_have_taken_effect_at_any_time_since() {
    let of = |answers: [&str; 2]| {
        let history = History::new(Model::register());
        history.called(tid(1), "put 1");
        let unknown = history.called(tid(2), "put 2");
        history.returned(unknown, "?");
        for answer in answers {
            let get = history.called(tid(3), "get");
            history.returned(get, answer);
        }
        history.check().is_ok()
    };
    for answers in [["none", "none"], ["none", "1"], ["1", "2"], ["2", "1"]] {
        assert!(of(answers), "{answers:?}");
    }
    for answers in [["1", "none"], ["3", "3"]] {
        assert!(!of(answers), "{answers:?}");
    }
}

#[test]
fn a_number_of_no_operation_and_a_second_return_are_ignored() {
    let history = History::new(Model::register());
    history.returned(0, "ok");
    let put = history.called(tid(1), "put 1");
    history.returned(put, "ok");
    history.returned(put, "false");
    history.returned(7, "ok");
    assert_eq!(history.operations().len(), 1);
    history.check().unwrap();
}

#[test]
fn one_operation_is_named_in_the_singular() {
    let window = sequence(Model::counter(), &[("get", "7")]).unwrap_err();
    let text = window.to_string();
    assert!(
        text.starts_with("no order explains this operation:\n"),
        "{text}"
    );
    let undecided = sequence(Model::counter().steps(0), &[("get", "0")]).unwrap_err();
    let text = undecided.to_string();
    assert!(
        text.contains("explains the 1 operation is not decided"),
        "{text}"
    );
    let history = History::new(Model::counter());
    history.called(tid(1), "get");
    assert_eq!(format!("{history:?}"), "History(1 operation)");
}

#[test]
fn a_window_begins_where_nothing_is_under_way() {
    let history = History::new(Model::map());
    let done = |task, input: &str, answer: &str| {
        let operation = history.called(tid(task), input);
        history.returned(operation, answer);
    };
    for value in 0..5 {
        done(1, &format!("put x {value}"), "ok");
        done(2, &format!("put y {value}"), "ok");
    }
    let get = history.called(tid(3), "get x");
    done(1, "put x <5>", "ok");
    history.returned(get, "4");
    done(4, "get x", "4");
    done(4, "get y", "4");
    let window = history.check().unwrap_err();
    let expected = "\
no order explains these 3 operations on \"x\", behind 5 others:
  task 3   get x = 4       |-----|
  task 1   put x <5> = ok    |-|
  task 4   get x = 4               |-|  it would be <5>";
    assert_eq!(window.to_string(), expected);
    assert_eq!(format!("{window:?}"), expected);
    let svg = window.svg();
    for part in [
        "<title>put x &lt;5&gt; = ok</title>",
        "behind 5 others",
        ">task 4</text>",
    ] {
        assert!(svg.contains(part), "{svg}");
    }
    assert!(!svg.contains("<5>"));
}

#[test]
fn a_check_that_takes_too_many_steps_says_so() {
    let history = |model| {
        let history = History::new(model);
        for task in 1..=18 {
            history.called(tid(task), format!("add {}", 1 << task));
        }
        let get = history.called(tid(19), "get");
        history.returned(get, "1");
        history.check().unwrap_err()
    };
    let undecided = history(Model::counter().steps(5000));
    assert!(undecided.unexplained().is_none());
    let text = undecided.to_string();
    assert!(text.contains("is not decided after 5000 steps"), "{text}");
    assert!(text.contains("Model::by_key"), "{text}");
}

#[test]
fn a_part_without_an_order_is_reported_although_another_is_not_decided() {
    let model = Model::new(0, |sum: &mut u64, input: &str| {
        let (_, number) = input.split_once(' ')?;
        *sum += number.parse::<u64>().ok()?;
        Some(sum.to_string())
    });
    let key = |input: &str| input.split(' ').next().unwrap_or_default().to_string();
    let history = History::new(model.by_key(key).steps(50_000));
    // No order has an odd sum, and there are a million to try.
    for task in 1..=20 {
        history.called(tid(task), format!("a {}", 1 << task));
    }
    let of = |task, input: &str, answer| {
        let operation = history.called(tid(task), input);
        history.returned(operation, answer);
    };
    of(21, "a 0", "1");
    let window = history.check().unwrap_err();
    assert!(window.unexplained().is_none(), "{window}");
    of(22, "b 2", "3");
    let window = history.check().unwrap_err();
    let unexplained = window.unexplained().expect("it is decided");
    assert_eq!(unexplained.input, "b 2", "{window}");
}

#[test]
fn a_long_history_is_checked_in_little_time() {
    let history = History::new(Model::map());
    let mut draws = Draws::new(1);
    let mut state = brute::State::default();
    for round in 0..1000 {
        // Three at a time, which take effect in another order than that of their calls.
        let calls: Vec<(usize, String)> = (1..=3)
            .map(|task| {
                let key = draws.below(4);
                let input = match draws.below(3) {
                    0 => format!("put {key} {round}"),
                    1 => format!("add {key} {task}"),
                    _ => format!("get {key}"),
                };
                (history.called(tid(task), &*input), input)
            })
            .collect();
        for (call, input) in calls.iter().rev() {
            history.returned(*call, state.step(2, input));
        }
    }
    history.check().unwrap();
    let get = history.called(tid(1), "get 0");
    history.returned(get, "-1");
    let window = history.check().unwrap_err();
    assert!(window.operations().len() < 8, "{window}");
}

// ---- in a kernel

#[test]
fn an_operation_that_is_cut_has_no_return() {
    let history = History::new(Model::register());
    let mine = history.clone();
    run_main(&mut sim().build().unwrap(), async move |os: &mut Os| {
        let slow = async |os: &mut Os| {
            mine.op(os, "put 1", async |os| {
                os.sleep(Duration::from_secs(9)).await;
                "ok"
            })
            .await
        };
        assert!(os.timeout(Duration::from_secs(1), slow).await.is_err());
        let theirs = mine.clone();
        let victim = async move |os: &mut Os| {
            theirs
                .op(os, "put 2", async |os| {
                    os.yield_now().await;
                    "ok"
                })
                .await;
        };
        let victim = os.spawn_detached("victim", victim).await.unwrap();
        os.kill(victim).await;
        let seen = mine.op(os, "get", async |_| 2).await;
        assert_eq!(seen, 2, "the answer is returned");
    });
    let operations = history.operations();
    let told: Vec<_> = operations
        .iter()
        .map(|it| (u64::from(it.task), &*it.input, it.answer.as_deref()))
        .collect();
    let expected = [
        (1, "put 1", None),
        (2, "put 2", None),
        (1, "get", Some("2")),
    ];
    assert_eq!(told, expected);
    history.check().unwrap();
}

/// The replica is never told. A get is wrong only if it begins after the put has returned, and no
/// object but the history says so.
fn never_told(kernel: &mut Kernel) -> Result<bool, Error> {
    let history = History::new(Model::register());
    let (put, get) = (history.clone(), history.clone());
    kernel.spawn("writer", async move |os: &mut Os| {
        put.op(os, "put 1", async |os| {
            os.yield_now().await;
            "ok"
        })
        .await;
    })?;
    kernel.spawn("reader", async move |os: &mut Os| {
        os.yield_now().await;
        get.op(os, "get", async |os| {
            os.yield_now().await;
            "none"
        })
        .await;
    })?;
    kernel.run()?;
    Ok(history.check().is_ok())
}

#[test]
fn an_exhaustive_search_runs_each_order_of_a_return_and_a_call() {
    let explored = check(|kernel| {
        let is_linear = never_told(kernel)?;
        kernel.outcome(is_linear.to_string());
        Ok(())
    })
    .exhaustive()
    .explore();
    assert!(explored.proved, "{explored}");
    // The put comes first, the get does, or they overlap.
    assert_eq!((explored.schedules, explored.classes), (3, 3));
    assert!(explored.outcomes.iter().eq(["false", "true"]));
}

/// Calls commute with calls, and returns with returns: of a history alone no order is left to search
/// but those of a return and a call.
#[test]
fn an_exhaustive_search_runs_no_more_orders_than_differ() {
    let explored = check(|kernel| {
        let history = History::new(Model::counter());
        for name in ["a", "b", "c"] {
            let history = history.clone();
            kernel.spawn(name, async move |os: &mut Os| {
                history.op(os, "get", async |_| 0).await;
            })?;
        }
        kernel.run()?;
        history.check().unwrap();
        Ok(())
    });
    // Each operation is a turn, before or after each other: all orders of three differ.
    assert_eq!(explored.exhaustive().explore().classes, 6);
}

/// Increments of four tasks, with a lock around the read and the write or without.
fn increments(kernel: &mut Kernel, locks: bool) -> Result<(), Window> {
    let history = History::new(Model::counter());
    let mine = history.clone();
    let main = async move |os: &mut Os| {
        let (sum, lock) = (Shared::named("sum", 0), Mutex::new(os, ()).await);
        for _ in 0..4 {
            let (history, sum, lock) = (mine.clone(), sum.clone(), lock.clone());
            let client = async move |os: &mut Os| {
                history
                    .op(os, "add 1", async |os: &mut Os| {
                        let _held = match locks {
                            true => Some(lock.lock(os).await),
                            false => None,
                        };
                        let read = sum.get();
                        os.yield_now().await;
                        sum.set(read + 1);
                        read + 1
                    })
                    .await;
            };
            os.spawn_detached("client", client).await.unwrap();
        }
    };
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap().check().unwrap();
    history.check()
}

#[test]
fn a_search_finds_a_lost_increment_and_a_lock_cures_it() {
    check(|kernel| {
        increments(kernel, true).unwrap();
        Ok(())
    })
    .schedules(300)
    .run();
    let lost = check(|kernel| {
        increments(kernel, false).unwrap();
        Ok(())
    });
    let why = lost.explore().failure.expect("one is lost").why;
    assert!(why.contains("no order explains these"), "{why}");
    assert!(why.contains("add 1 = 1"), "{why}");
}

/// What a history marks for the search is not shown as memory of the tasks.
#[test]
fn a_report_does_not_show_the_marks_of_a_history() {
    let failure = check(|kernel| {
        assert!(never_told(kernel)?, "stale");
        Ok(())
    });
    let failure = failure.explore().failure.expect("some schedule is stale");
    assert!(!failure.details.contains("shared"), "{}", failure.details);
}

/// While their answers are open, adds have many orders that a check of the whole does not try.
#[test]
fn a_wrong_answer_beside_many_operations_is_named_or_none_is() {
    for (adds, is_named) in [(8, true), (14, true), (22, false)] {
        let history = History::new(Model::counter());
        let add = |task: u64| history.called(tid(task + 2), "add 1");
        let added: Vec<usize> = (0..adds).map(add).collect();
        let get = history.called(tid(1), "get");
        history.returned(get, "50");
        for (at, add) in added.into_iter().enumerate() {
            history.returned(add, at + 1);
        }
        let window = history.check().expect_err("there are fewer");
        let named = window.unexplained().map(|operation| &*operation.input);
        assert_eq!(named, is_named.then_some("get"), "{window}");
        let text = window.to_string();
        assert_eq!(text.contains("  it would be "), is_named, "{text}");
        let begin = format!("no order explains these {} operations:\n", adds + 1);
        assert!(text.starts_with(&begin), "{text}");
    }
}
