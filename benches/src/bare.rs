//! What a program takes that does nothing to speak of.

fn main() {
    println!("nothing");
}
