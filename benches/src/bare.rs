//! The cost of a program that does almost nothing.

fn main() {
    println!("nothing");
}
