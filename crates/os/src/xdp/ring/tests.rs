//! A ring against a queue, in ordinary memory.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

/// A ring in ordinary memory, shared by both sides of a test.
#[derive(Debug)]
struct Plain {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    words: Vec<AtomicU64>,
}

impl Plain {
    fn new<S: RingSlot>(slots: usize, index: u32) -> Arc<Self> {
        Arc::new(Self {
            producer: AtomicU32::new(index),
            consumer: AtomicU32::new(index),
            flags: AtomicU32::new(0),
            words: (0..slots * S::WORDS).map(|_| AtomicU64::new(0)).collect(),
        })
    }
}

impl SharedRingMemory for Arc<Plain> {
    fn producer(&self) -> &AtomicU32 {
        &self.producer
    }
    fn consumer(&self) -> &AtomicU32 {
        &self.consumer
    }
    fn flags(&self) -> &AtomicU32 {
        &self.flags
    }
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

type Sides<S> = (Producer<Arc<Plain>, S>, Consumer<Arc<Plain>, S>);

fn sides<S: RingSlot>(slots: usize, index: u32) -> Sides<S> {
    let memory = Plain::new::<S>(slots, index);
    (Producer::new(Arc::clone(&memory)), Consumer::new(memory))
}

#[test]
fn nothing_is_seen_before_it_is_published() {
    let (mut producer, mut consumer) = sides::<u64>(4, 0);
    producer.push(7);
    assert!(!consumer.is_ready());
    producer.publish();
    assert!(consumer.is_ready());
    assert_eq!((consumer.available(1), consumer.peek(0)), (1, 7));
    assert_eq!(producer.pending(), 1);
    consumer.release(1);
    assert_eq!((producer.pending(), consumer.available(1)), (0, 0));
}

#[test]
fn a_full_ring_has_no_room_until_a_slot_is_released() {
    let (mut producer, mut consumer) = sides::<u64>(2, u32::MAX);
    for value in [1, 2] {
        assert!(producer.room(1) > 0);
        producer.push(value);
    }
    producer.publish();
    assert_eq!((producer.room(1), consumer.available(9)), (0, 2));
    consumer.release(1);
    assert_eq!(producer.room(1), 1);
}

/// The cache line of the other side's index is the other side's until this one needs it.
#[test]
fn the_other_sides_index_is_read_only_if_too_few_are_known() {
    let (mut producer, mut consumer) = sides::<u64>(4, 0);
    (0..2).for_each(|value| producer.push(value));
    producer.publish();
    assert_eq!((consumer.available(1), producer.room(2)), (2, 2));
    producer.push(2);
    producer.publish();
    assert_eq!((consumer.available(2), consumer.available(3)), (2, 3));
    consumer.release(3);
    assert_eq!((producer.room(1), producer.room(2)), (1, 4));
}

#[test]
fn the_kernels_wish_to_be_called_is_seen() {
    let memory = Plain::new::<u64>(2, 0);
    let producer = Producer::<_, u64>::new(Arc::clone(&memory));
    assert!(!producer.needs_wakeup());
    memory.flags.store(NEED_WAKEUP, Ordering::Relaxed);
    assert!(producer.needs_wakeup());
}

#[test]
fn a_descriptor_has_the_layout_of_the_kernel() {
    let words = [AtomicU64::new(0), AtomicU64::new(0)];
    let piece = Piece {
        address: 0x1_0000_0100,
        bytes: 60,
        options: 1,
    };
    piece.write(&words);
    assert_eq!(Piece::read(&words), piece);
    let second = words[1].load(Ordering::Relaxed).to_ne_bytes();
    // struct xdp_desc: the length comes before the options.
    assert_eq!(second[..4], 60_u32.to_ne_bytes());
}

/// Lets the other side go on. If it never does, this fails instead of waiting without end.
fn wait(turns: &mut u32) {
    *turns += 1;
    assert!(*turns < 1_000_000, "nothing moves");
    std::thread::yield_now();
}

#[test]
fn two_threads_pass_every_value_once_and_in_order() {
    let last: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let (mut producer, mut consumer) = sides::<Piece>(8, u32::MAX - 20);
    let filling = std::thread::spawn(move || {
        let (mut next, mut turns) = (0, 0);
        while next < last {
            let room = u64::from(producer.room(1)).min(last - next);
            for address in next..next + room {
                producer.push(Piece {
                    address,
                    bytes: address as u32,
                    options: 0,
                });
            }
            producer.publish();
            next += room;
            match room {
                0 => wait(&mut turns),
                _ => turns = 0,
            }
        }
    });
    let (mut expected, mut turns) = (0, 0);
    while expected < last {
        let available = consumer.available(1);
        for ahead in 0..available {
            let piece = consumer.peek(ahead);
            assert_eq!((piece.address, piece.bytes), (expected, expected as u32));
            expected += 1;
        }
        consumer.release(available);
        match available {
            0 => wait(&mut turns),
            _ => turns = 0,
        }
    }
    filling.join().unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    Push(u32),
    Publish,
    Pop(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u32..10).prop_map(Step::Push),
        Just(Step::Publish),
        (0_u32..10).prop_map(Step::Pop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_ring_is_a_queue_of_bounded_length(
        size in 0_u32..6,
        index in prop_oneof![Just(0), Just(u32::MAX - 3), any::<u32>()],
        steps in proptest::collection::vec(step(), 0..100),
    ) {
        let slots = 1_u32 << size;
        let (mut producer, mut consumer) = sides::<u64>(slots as usize, index);
        let (mut filled, mut published) = (VecDeque::new(), VecDeque::new());
        let mut value = 0;
        for step in steps {
            match step {
                Step::Push(count) => {
                    let taken = (filled.len() + published.len()) as u32;
                    let room = producer.room(count);
                    prop_assert!(room <= slots - taken);
                    prop_assert!(room >= count.min(slots - taken));
                    for _ in 0..count.min(room) {
                        value += 1;
                        producer.push(value);
                        filled.push_back(value);
                    }
                }
                Step::Publish => {
                    producer.publish();
                    published.append(&mut filled);
                    prop_assert_eq!(producer.pending() as usize, published.len());
                }
                Step::Pop(count) => {
                    let available = consumer.available(count);
                    prop_assert!(available as usize <= published.len());
                    prop_assert!(available >= count.min(published.len() as u32));
                    let count = count.min(available);
                    for ahead in 0..count {
                        prop_assert_eq!(Some(consumer.peek(ahead)), published.pop_front());
                    }
                    consumer.release(count);
                }
            }
        }
    }

    /// Whatever stands in an index, no side reaches outside the slots or counts more than there are.
    #[test]
    fn a_side_that_lies_is_harmless(index in any::<u32>(), lie in any::<u32>()) {
        let memory = Plain::new::<u64>(4, index);
        let mut producer = Producer::<_, u64>::new(Arc::clone(&memory));
        let mut consumer = Consumer::<_, u64>::new(Arc::clone(&memory));
        memory.producer.store(lie, Ordering::Relaxed);
        memory.consumer.store(lie.wrapping_mul(7), Ordering::Relaxed);
        prop_assert!(producer.room(u32::MAX) <= 4 && producer.pending() <= 4);
        let available = consumer.available(u32::MAX);
        prop_assert!(available <= 4);
        for ahead in 0..available {
            consumer.peek(ahead);
        }
        consumer.release(available);
    }
}
