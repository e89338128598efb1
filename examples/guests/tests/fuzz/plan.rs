//! A composition, drawn from a seed, and what it must come to.

/// The numbers that plans are drawn from: xorshift.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from 0 to `n - 1`.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 11) % n as u64) as usize
    }

    /// One of these.
    fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        // Few different values, so that delimiters occur.
        (0..len).map(|_| b'a' + self.below(20) as u8).collect()
    }
}

/// How an end of all connections runs the futures of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    Nested,
    All,
    Unordered,
    Buffered(usize),
    BufferUnordered(usize),
    Select,
}

/// How a client sends.
#[derive(Clone, Debug)]
pub enum Sends {
    Pieces { flushes: bool },
    Buffered(usize),
    Copy,
    Chain { take: bool },
    CopyBuf(usize),
    Sink,
    Ahead(usize),
    Select(u32),
}

/// How a client receives.
#[derive(Clone, Debug)]
pub enum Receives {
    ToEnd,
    Until(usize, u8),
    Take(u64),
    Chain(Vec<u8>),
    Chunks(usize),
    Select(usize, u32),
    Unfold(usize),
    Copy,
}

/// What the server makes of a connection's bytes.
#[derive(Clone, Debug)]
pub enum Turns {
    Copy,
    CopyBuf(usize),
    Reverse,
    Xor(u64, usize),
    Prefix(Vec<u8>, usize),
    Until(u8),
    Pump(usize),
}

#[derive(Clone, Debug)]
pub struct Connection {
    pub index: usize,
    pub pieces: Vec<Vec<u8>>,
    pub sends: Sends,
    pub receives: Receives,
    pub turns: Turns,
    /// Whether the client sends all before it receives. Only where the server does the same.
    pub in_turn: bool,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub on_tokio_traits: bool,
    pub connections: Vec<Connection>,
    pub client: Gather,
    pub server: Gather,
    /// Whether the server sends the bytes of connection 0 to connection 1, and back.
    pub crosses: bool,
    /// The size of tokio's pipes.
    pub pipe: usize,
}

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let draw = &mut Draw::new(seed);
        let number = 1 + draw.below(4);
        let crosses = number > 1 && draw.below(4) == 0;
        let all = if crosses { number } else { 1 };
        let mut plan = Self {
            on_tokio_traits: draw.below(2) == 0,
            connections: (0..number)
                .map(|index| connection(draw, index, crosses && index < 2))
                .collect(),
            client: gather(draw, all, number),
            server: gather(draw, 1, number),
            crosses,
            pipe: draw.of(&[1, 5, 700, 60_000]),
        };
        // `read_to_end` of futures clears the rest of its buffer at each poll.
        let longest = plan
            .connections
            .iter()
            .map(|one| one.pieces.concat().len())
            .max();
        if longest > Some(20_000) {
            plan.pipe = plan.pipe.max(4096);
        }
        plan
    }

    /// The bytes that each client must receive.
    pub fn expected(&self) -> Vec<Vec<u8>> {
        let sent = |index: usize| self.connections[index].pieces.concat();
        let each = self
            .connections
            .iter()
            .map(|connection| match connection.index {
                0 if self.crosses => sent(1),
                1 if self.crosses => sent(0),
                index => connection.turns.model(sent(index)),
            });
        each.collect()
    }
}

/// Runs at least `least` futures at once.
fn gather(draw: &mut Draw, least: usize, number: usize) -> Gather {
    let room = least + draw.below(number - least + 1);
    match draw.below(6) {
        0 => Gather::Nested,
        1 => Gather::All,
        2 => Gather::Unordered,
        3 => Gather::Buffered(room),
        4 => Gather::BufferUnordered(room),
        _ => Gather::Select,
    }
}

fn connection(draw: &mut Draw, index: usize, is_crossed: bool) -> Connection {
    let size = draw.of(&[0, 10, 700, 700, 5_000, 5_000, 5_000, 150_000]);
    let pieces = (0..draw.below(7)).map(|_| {
        let len = draw.below(size / 3 + 1);
        draw.bytes(len)
    });
    let pieces: Vec<_> = pieces.collect();
    let most = draw.of(&[7, 300, 9000]);
    let room = 1 + draw.below(most);
    let byte = b'a' + draw.below(21) as u8;
    let prefix = draw.below(40);
    let sends = match draw.below(8) {
        0 => Sends::Pieces {
            flushes: draw.below(2) == 0,
        },
        1 => Sends::Buffered(room),
        2 => Sends::Copy,
        3 => Sends::Chain {
            take: draw.below(2) == 0,
        },
        4 => Sends::CopyBuf(room),
        5 => Sends::Sink,
        6 => Sends::Ahead(1 + draw.below(4)),
        _ => Sends::Select(draw.below(4) as u32),
    };
    let receives = match draw.below(8) {
        0 => Receives::ToEnd,
        1 => Receives::Until(room, byte),
        2 => Receives::Take(draw.below(2 * size + 1) as u64),
        3 => Receives::Chain(draw.bytes(prefix)),
        4 => Receives::Chunks(room),
        5 => Receives::Select(room, draw.below(4) as u32),
        6 => Receives::Unfold(1 + draw.below(4)),
        _ => Receives::Copy,
    };
    let turns = match draw.below(7) {
        0 => Turns::Copy,
        1 => Turns::CopyBuf(room),
        2 => Turns::Reverse,
        3 => Turns::Xor(draw.below(size + 1) as u64, room),
        4 => Turns::Prefix(draw.bytes(prefix), room),
        5 => Turns::Until(byte),
        _ => Turns::Pump(room),
    };
    let in_turn = !is_crossed && matches!(turns, Turns::Reverse) && draw.below(2) == 0;
    Connection {
        index,
        pieces,
        sends,
        receives,
        turns,
        in_turn,
    }
}

impl Turns {
    /// What the server makes of these bytes, computed at once.
    fn model(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Reverse => bytes.reverse(),
            Self::Xor(after, _) => bytes
                .iter_mut()
                .skip(*after as usize)
                .for_each(|byte| *byte ^= 0x55),
            Self::Prefix(prefix, _) => bytes = [&prefix[..], &bytes].concat(),
            Self::Copy | Self::CopyBuf(_) | Self::Until(_) | Self::Pump(_) => {}
        }
        bytes
    }
}
