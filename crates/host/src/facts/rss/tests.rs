//! The hash against Microsoft's published vectors, and tables.

use super::*;
use mpps_trial::mentions;
use proptest::prelude::*;

/// "Verifying the RSS Hash Calculation": destination, source, hash of the addresses, hash with ports.
const VECTORS: &str = "\
    161.142.100.80:1766 66.9.149.187:2794 323e8fc2 51ccc178\n\
    65.69.140.83:4739 199.92.111.2:14230 d718262a c626b0ea\n\
    12.22.207.184:38024 24.19.198.95:12898 d2d0a5de 5c2b394a\n\
    209.142.163.6:2217 38.27.205.30:48228 82989176 afc7327f\n\
    202.188.127.2:1303 153.39.163.191:44251 5d1809c5 10e828a2\n\
    [3ffe:2501:200:3::1]:1766 [3ffe:2501:200:1fff::7]:2794 2cc18cd5 40207d3d\n\
    [ff02::1]:4739 [3ffe:501:8::260:97ff:fe40:efab]:14230 0f0c461c dde51bbf\n\
    [fe80::200:f8ff:fe21:67cf]:38024 [3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251 4b61e985 02d1feef";

fn microsoft() -> Toeplitz {
    Toeplitz::new(&MICROSOFT_KEY).unwrap()
}

/// The definition, a bit at a time.
fn by_bits(key: &[u8; KEY_BYTES], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1 == 1;
    let set = (0..input.len() * 8).filter(|at| bit(input, *at));
    set.fold(0, |sum, at| {
        let window = (at..at + 32).fold(0, |word, at| word << 1 | u32::from(bit(key, at)));
        sum ^ window
    })
}

#[test]
fn microsofts_vectors() {
    for row in VECTORS.lines() {
        let [destination, source, hashes @ ..] = &*row.split(' ').collect::<Vec<_>>() else {
            panic!("{row}");
        };
        let flow: RssFlow = format!("{source}-{destination}").parse().unwrap();
        let hash = |hashed| format!("{:08x}", microsoft().hash(&flow, hashed));
        assert_eq!(
            [Hashed::Addresses, Hashed::Ports].map(hash),
            *hashes,
            "{flow}"
        );
    }
}

#[test]
fn flows_are_read_as_they_are_written() {
    for text in ["10.0.0.1:1-10.0.0.2:65535", "[fe80::1]:0-[::]:9"] {
        assert_eq!(text.parse::<RssFlow>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "10.0.0.1:1",
        "10.0.0.1-10.0.0.2",
        "10.0.0.1:1-[::1]:1",
        "a:1-b:2",
    ] {
        assert!(text.parse::<RssFlow>().is_err(), "{text}");
    }
}

#[test]
fn letters_of_ethtool() {
    assert_eq!(Hashed::of_letters("sdfn"), Some(Hashed::Ports));
    assert_eq!(Hashed::of_letters("ds"), Some(Hashed::Addresses));
    for other in ["", "s", "vsdfn", "t", "sdf"] {
        assert_eq!(Hashed::of_letters(other), None, "{other}");
    }
}

#[test]
fn a_short_key_is_refused_and_a_long_one_is_cut() {
    let refused = Toeplitz::new(&MICROSOFT_KEY[..39]).unwrap_err().to_string();
    mentions(&refused, "39 bytes | 40");
    // i40e and ice have 52 bytes.
    let mut long = MICROSOFT_KEY.to_vec();
    long.extend([0xff; 12]);
    let flow: RssFlow = "[ff02::1]:1-[::2]:3".parse().unwrap();
    let long = Toeplitz::new(&long).unwrap();
    assert_eq!(
        long.hash(&flow, Hashed::Ports),
        microsoft().hash(&flow, Hashed::Ports)
    );
}

#[test]
fn tables_and_loads() {
    assert_eq!(table_of(7, 3), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(table_of(2, 0), [0, 0]);
    assert_eq!(entry_of(0x1_0085, 128), 5);
    assert_eq!(imbalance(&[10, 0, 0, 0]), 4.0);
    assert_eq!(imbalance(&[5, 5]), 1.0);
    assert_eq!(imbalance(&[]), 1.0);
    // One heavy entry gets a queue to itself.
    let weights = even_weights(&[10, 10, 10, 100, 0, 0, 20], 3);
    assert_eq!(weights, [3, 3, 1]);
    assert_eq!(table_of_weights(&weights), [0, 0, 0, 1, 1, 1, 2]);
    assert_eq!(even_weights(&[5], 3), [1, 0, 0]);
}

proptest! {
    #[test]
    fn the_tables_hash_what_the_definition_does(
        key in proptest::array::uniform::<_, KEY_BYTES>(any::<u8>()),
        (source, destination) in (any::<[u8; 16]>(), any::<[u8; 16]>()),
        ports in any::<[u16; 2]>(),
    ) {
        let socket = |address: [u8; 16], port| SocketAddr::new(address.into(), port);
        let flow = RssFlow::new(socket(source, ports[0]), socket(destination, ports[1])).unwrap();
        let mut input = [source, destination].concat();
        let toeplitz = Toeplitz::new(&key).unwrap();
        prop_assert_eq!(toeplitz.hash(&flow, Hashed::Addresses), by_bits(&key, &input));
        input.extend(ports.map(u16::to_be_bytes).concat());
        prop_assert_eq!(toeplitz.hash(&flow, Hashed::Ports), by_bits(&key, &input));
    }

    /// Every entry has a queue, and no queue has more than an even share and the heaviest entry.
    #[test]
    fn even_weights_are_even(
        loads in proptest::collection::vec(0_u64..1000, 1..200),
        queues in 1_u32..20,
    ) {
        let weights = even_weights(&loads, queues);
        let table = table_of_weights(&weights);
        prop_assert_eq!((weights.len(), table.len()), (queues as usize, loads.len()));
        let mut by_queue = vec![0; queues as usize];
        for (queue, load) in table.iter().zip(&loads) {
            by_queue[*queue as usize] += load;
        }
        let (sum, most) = (loads.iter().sum::<u64>(), loads.iter().max().copied().unwrap_or(0));
        let busiest = by_queue.iter().max().copied().unwrap_or(0);
        prop_assert!(busiest <= sum / u64::from(queues) + most);
    }

    #[test]
    fn no_text_is_a_panic(text in "\\PC{0,60}") {
        let _ = text.parse::<RssFlow>();
    }
}

/// Documentation/networking/scaling.rst, "RSS Configuration".
#[test]
fn symmetric_hashes_take_what_linux_documents() {
    let flow: RssFlow = "10.0.0.1:1000-10.0.0.6:53".parse().unwrap();
    let hashed = |symmetry: Symmetry| symmetry.of(&flow).to_string();
    // 1 ^ 6 is 7, and 1 | 6 too; 1000 ^ 53 is 989, 1000 | 53 is 1021.
    assert_eq!(hashed(Symmetry::SymmetricXor), "0.0.0.7:989-0.0.0.7:989");
    assert_eq!(
        hashed(Symmetry::SymmetricOrXor),
        "10.0.0.7:1021-0.0.0.7:989"
    );
    let flow: RssFlow = "[fd00::1]:1000-[fd00::6]:53".parse().unwrap();
    let both = Symmetry::SymmetricOrXor.of(&flow).to_string();
    assert_eq!(both, "[fd00::7]:1021-[::7]:989");
    assert_eq!("symmetric-xor".parse(), Ok(Symmetry::SymmetricXor));
    assert!("xor".parse::<Symmetry>().is_err());
    assert_eq!(Symmetry::of_transform(0), None);
}

proptest! {
    #[test]
    fn both_directions_have_one_hash(from: u128, to: u128, ports: [u16; 2], is_v4: bool) {
        let end = |bits: u128, port| match is_v4 {
            true => SocketAddr::from(((bits as u32).to_be_bytes(), port)),
            false => SocketAddr::from((bits.to_be_bytes(), port)),
        };
        let [source, destination] = [end(from, ports[0]), end(to, ports[1])];
        let there = RssFlow { source, destination };
        let back = RssFlow { source: destination, destination: source };
        for symmetry in [Symmetry::SymmetricXor, Symmetry::SymmetricOrXor] {
            for hashed in [Hashed::Addresses, Hashed::Ports] {
                let hash = |flow| microsoft().hash(&symmetry.of(flow), hashed);
                prop_assert_eq!(hash(&there), hash(&back));
            }
        }
    }
}

#[test]
fn keys_are_read() {
    let long = "6d:5A".to_owned() + &":00".repeat(38);
    assert_eq!(key(&long).unwrap()[..2], [0x6d, 0x5a]);
    assert_eq!(key(&"ab".repeat(52)).unwrap().len(), 52);
    assert_eq!(key(&hexadecimal(&MICROSOFT_KEY)).unwrap(), MICROSOFT_KEY);
    for (text, why) in [
        ("", "0 bytes"),
        ("6d", "1 bytes"),
        ("6", "hexadecimal"),
        ("zz", "hexadecimal"),
        ("äö", "hexadecimal"),
    ] {
        let refused = key(text).unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
}
