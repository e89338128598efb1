//! The part of a search that a cluster gives this process, by its environment.

/// Returns the number of this process's part and the number of parts. `of` is the number of parts
/// that was told; a Slurm array tells it, too. `var` reads the environment.
pub(super) fn shard(
    of: Option<u64>,
    var: impl Fn(&str) -> Option<String>,
) -> Result<Option<(u64, u64)>, String> {
    let number = |name: &str| match var(name) {
        None => Ok(None),
        Some(text) => match text.parse::<u64>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("{name}={text}: it takes a whole number")),
        },
    };
    // A job of an array has its own tasks and steps; the array's number is what counts.
    let slurm = number("SLURM_ARRAY_TASK_ID")?;
    let (index, count) = if let Some(task) = slurm {
        let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
        let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
        let index = task.saturating_sub(first) / step;
        (Some(index), number("SLURM_ARRAY_TASK_COUNT")?)
    } else if let Some(index) = number("JOB_COMPLETION_INDEX")? {
        (Some(index), None)
    } else {
        let sequence = number("PARALLEL_SEQ")?;
        (sequence.map(|sequence| sequence.saturating_sub(1)), None)
    };
    match (index, of.or(count)) {
        (_, None) => Ok(None),
        (Some(index), Some(of)) if index < of => Ok(Some((index + 1, of))),
        (Some(index), Some(of)) => Err(format!(
            "this process has number {} in its cluster, but there are {of} parts",
            index + 1
        )),
        (None, Some(_)) => Err(
            "--shards takes the number of the part from SLURM_ARRAY_TASK_ID, \
             JOB_COMPLETION_INDEX or PARALLEL_SEQ, and none is set; or give --shard I/N"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::shard;

    #[test]
    fn a_cluster_numbers_its_processes_from_its_own_begin() {
        let of = |count, set: &[(&str, &str)]| {
            let var = |name: &str| set.iter().find(|(key, _)| *key == name);
            shard(count, |name| var(name).map(|(_, value)| value.to_string()))
        };
        let slurm = [
            ("SLURM_ARRAY_TASK_ID", "7"),
            ("SLURM_ARRAY_TASK_MIN", "1"),
            ("SLURM_ARRAY_TASK_STEP", "2"),
            ("SLURM_ARRAY_TASK_COUNT", "5"),
        ];
        assert_eq!(of(None, &slurm), Ok(Some((4, 5))));
        assert_eq!(of(Some(8), &slurm), Ok(Some((4, 8))));
        let kubernetes = [("JOB_COMPLETION_INDEX", "0")];
        assert_eq!(of(Some(8), &kubernetes), Ok(Some((1, 8))));
        // The index alone does not tell how many there are.
        assert_eq!(of(None, &kubernetes), Ok(None));
        assert_eq!(of(Some(8), &[("PARALLEL_SEQ", "8")]), Ok(Some((8, 8))));
        assert_eq!(of(None, &[]), Ok(None));
        for (count, set, error) in [
            (8, &[("PARALLEL_SEQ", "9")][..], "number 9 in its cluster"),
            (8, &[("PARALLEL_SEQ", "x")], "PARALLEL_SEQ=x: it takes"),
            (8, &[], "none is set; or give --shard I/N"),
        ] {
            let told = of(Some(count), set).unwrap_err();
            assert!(told.contains(error), "{told}");
        }
    }
}
