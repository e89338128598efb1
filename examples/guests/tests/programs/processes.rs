//! One seed, three processes.
