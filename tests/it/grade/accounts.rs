//! Three transfers between four accounts. No money is lost, and transfers between different accounts may
//! overlap.

use trapline::{
    Errno, Error, Kernel, Os, Queue, Shared,
    sync::{Condition, Mutex, Semaphore},
};

use super::{
    Peak, Wrong, all, all_right, all_wrong, locked, locked_when, programs, put, run, take,
};

type Transfer = (usize, usize, i64);

/// From, to and amount. Two of them are opposite.
const TRANSFERS: [Transfer; 3] = [(0, 1, 3), (1, 0, 5), (2, 3, 7)];

#[derive(Clone)]
struct Bank {
    accounts: [Shared<i64>; 4],
    under_way: Peak,
}

impl Bank {
    async fn transfer(&self, os: &mut Os, (from, to, amount): Transfer) {
        self.under_way.enter();
        let (source, target) = (self.accounts[from].get(), self.accounts[to].get());
        os.yield_now().await;
        self.accounts[from].set(source - amount);
        self.accounts[to].set(target + amount);
        self.under_way.leave();
    }
}

/// Makes each transfer in a task. `make` makes what each does.
fn transferring<T: AsyncFn(&mut Os, &Bank, Transfer) + 'static>(
    kernel: &mut Kernel,
    make: impl AsyncFnOnce(&mut Os) -> T + 'static,
) -> Result<(), Error> {
    run(kernel, async move |os: &mut Os| {
        let bank = Bank {
            accounts: [10, 10, 10, 10].map(Shared::new),
            under_way: Peak::default(),
        };
        let (transfer, theirs) = (make(os).await, bank.clone());
        let each = async move |os: &mut Os, task: usize| {
            transfer(os, &theirs, TRANSFERS[task]).await;
        };
        all(os, TRANSFERS.len(), each).await?;
        let balances = bank.accounts.map(|account| account.get());
        let most = bank.under_way.most();
        writeln!(os, "{balances:?}, at most {most} at once");
        Ok::<(), Errno>(())
    })
}

/// Takes the locks of the accounts that `order` returns, one after the other.
fn with_locks(kernel: &mut Kernel, order: fn(Transfer) -> Vec<usize>) -> Result<(), Error> {
    transferring(kernel, async move |os: &mut Os| {
        let locks = locks(os).await;
        async move |os: &mut Os, bank: &Bank, transfer| {
            let mut held = Vec::new();
            for account in order(transfer) {
                held.push(locked(os, &locks[account]).await);
            }
            bank.transfer(os, transfer).await;
        }
    })
}

async fn locks(os: &mut Os) -> Vec<Mutex<()>> {
    let mut locks = Vec::new();
    for _ in 0..4 {
        locks.push(Mutex::new(os, ()).await);
    }
    locks
}

fn lower_first(kernel: &mut Kernel) -> Result<(), Error> {
    with_locks(kernel, |(from, to, _)| vec![from.min(to), from.max(to)])
}

fn higher_first(kernel: &mut Kernel) -> Result<(), Error> {
    with_locks(kernel, |(from, to, _)| vec![from.max(to), from.min(to)])
}

fn lock_for_each_pair(kernel: &mut Kernel) -> Result<(), Error> {
    transferring(kernel, async |os: &mut Os| {
        let pairs = [Semaphore::new(os, 1).await, Semaphore::new(os, 1).await];
        async move |os: &mut Os, bank: &Bank, transfer: Transfer| {
            let _permit = pairs[transfer.0 / 2].acquire(os).await;
            bank.transfer(os, transfer).await;
        }
    })
}

fn both_at_once(kernel: &mut Kernel) -> Result<(), Error> {
    transferring(kernel, async |os: &mut Os| {
        let (free, changed) = (Mutex::new(os, [true; 4]).await, Condition::new(os).await);
        async move |os: &mut Os, bank: &Bank, transfer: Transfer| {
            let (from, to, _) = transfer;
            let are_free = |free: &[bool; 4]| free[from] && free[to];
            let mut guard = locked_when(os, &free, &changed, are_free).await;
            (guard[from], guard[to]) = (false, false);
            drop(guard);
            bank.transfer(os, transfer).await;
            let mut guard = locked(os, &free).await;
            (guard[from], guard[to]) = (true, true);
            changed.notify_all(os).await;
        }
    })
}

fn gate(kernel: &mut Kernel) -> Result<(), Error> {
    transferring(kernel, async |os: &mut Os| {
        let (gate, locks) = (Mutex::new(os, ()).await, locks(os).await);
        async move |os: &mut Os, bank: &Bank, transfer: Transfer| {
            let taking = locked(os, &gate).await;
            let _from = locked(os, &locks[transfer.0]).await;
            let _to = locked(os, &locks[transfer.1]).await;
            drop(taking);
            bank.transfer(os, transfer).await;
        }
    })
}

/// An account's token is taken from its queue, and put back.
fn tokens_in_order(kernel: &mut Kernel) -> Result<(), Error> {
    transferring(kernel, async |os: &mut Os| {
        let mut tokens = Vec::new();
        for _ in 0..4 {
            let token = Queue::bounded(os, 1).await;
            put(os, &token, ()).await;
            tokens.push(token);
        }
        async move |os: &mut Os, bank: &Bank, transfer: Transfer| {
            let (from, to, _) = transfer;
            let (low, high) = (from.min(to), from.max(to));
            take(os, &tokens[low]).await;
            take(os, &tokens[high]).await;
            bank.transfer(os, transfer).await;
            put(os, &tokens[high], ()).await;
            put(os, &tokens[low], ()).await;
        }
    })
}

fn source_first(kernel: &mut Kernel) -> Result<(), Error> {
    with_locks(kernel, |(from, to, _)| vec![from, to])
}

fn one_lock(kernel: &mut Kernel) -> Result<(), Error> {
    with_locks(kernel, |_| vec![0])
}

fn no_lock(kernel: &mut Kernel) -> Result<(), Error> {
    with_locks(kernel, |_| Vec::new())
}

fn source_only(kernel: &mut Kernel) -> Result<(), Error> {
    with_locks(kernel, |(from, _, _)| vec![from])
}

fn target_kept(kernel: &mut Kernel) -> Result<(), Error> {
    transferring(kernel, async |os: &mut Os| {
        let locks = locks(os).await;
        async move |os: &mut Os, bank: &Bank, transfer: Transfer| {
            let (from, to, _) = transfer;
            let _first = locked(os, &locks[from.min(to)]).await;
            let second = locked(os, &locks[from.max(to)]).await;
            bank.transfer(os, transfer).await;
            std::mem::forget(second);
        }
    })
}

#[test]
fn the_programs_of_the_accounts_are_judged_right() {
    all_right(
        lower_first,
        programs![
            higher_first,
            lock_for_each_pair,
            both_at_once,
            gate,
            tokens_in_order
        ],
    );
}

#[test]
fn the_wrong_programs_of_the_accounts_are_found() {
    let [source, one, none, only, kept] =
        programs![source_first, one_lock, no_lock, source_only, target_kept];
    all_wrong(
        lower_first,
        &[
            (Wrong::Deadlock, source),
            (Wrong::TooStrict, one),
            (Wrong::Race, none),
            (Wrong::Race, only),
            (Wrong::Deadlock, kept),
        ],
    );
}
