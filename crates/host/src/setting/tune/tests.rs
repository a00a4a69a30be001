//! Plans of hosts as their drivers set them up, and what holds for every plan.

mod hosts;
mod queues;

use self::hosts::*;
use super::*;
use crate::setting::fake::{EndsAt, Fake, FakeMachine, plain, results};
use crate::setting::{OfQueue, Undone, UndoneStep, leftovers_in};
use proptest::prelude::*;
use std::fmt::Write;

/// The steps of a plan as text: what is changed, each setting and the command, and of the rest the verdict.
fn shown(plan: &TunePlan) -> Vec<String> {
    let text = |step: &PlannedStep| {
        let verdict = match &step.verdict {
            StageVerdict::Change(edits) => format!("change {}", edits.len()),
            StageVerdict::Try(edits) => format!("try {}", edits.len()),
            StageVerdict::ByHand(commands, _) => format!("ByHand({commands:?})"),
            other => format!("{other:?}"),
        };
        let mut text = format!("{:<12} {verdict}: {}\n", step.stage, step.why);
        let edits: Vec<&Edit> = step.edits().collect();
        // Of many similar edits, the first and the last suffice.
        let ends = match edits.as_slice() {
            [first, .., last] => vec![*first, *last],
            few => few.to_vec(),
        };
        for edit in ends {
            let command = edit.setting.command(&plan.interface, &edit.new);
            writeln!(text, "    {edit}: {command}").expect("a string");
            let quoted = command.replace(&*plan.interface, "'a;$(id)'");
            assert_eq!(edit.setting.command("a;$(id)", &edit.new), quoted);
        }
        text
    };
    plan.steps.iter().map(text).collect()
}

/// The steps of AF_XDP that differ from those of UDP, which has the same stages.
#[test]
fn plans_of_hosts_are_as_written_down() {
    let mut all = String::new();
    for (name, tunables) in hosts() {
        let mut of_udp = Vec::new();
        for goal in [TuneGoal::Udp, TuneGoal::AfXdp] {
            let mut plan = TunePlan::new(&tunables, goal, &[]);
            let mut steps = shown(&plan);
            match goal {
                TuneGoal::Udp => of_udp.clone_from(&steps),
                _ => {
                    assert_eq!(steps.len(), of_udp.len());
                    steps.retain(|step| !of_udp.contains(step));
                }
            }
            writeln!(all, "== {name}, {goal}\n{}", steps.concat()).expect("a string");
            let later = plan.steps.iter();
            let later = later.filter(|step| step.verdict == StageVerdict::Later);
            let later: Vec<&str> = later.map(|step| step.stage).collect();
            if !later.is_empty() {
                plan = TunePlan::new(&after(&tunables, &plan), goal, &[]);
                plan.steps.retain(|step| later.contains(&step.stage));
                writeln!(all, "-- then\n{}", shown(&plan).concat()).expect("a string");
            }
        }
    }
    insta::assert_snapshot!(all);
}

/// The host after a change, if its driver takes the values.
fn after(tunables: &Tunables, plan: &TunePlan) -> Tunables {
    let fake = Fake::new(fake(tunables));
    let interface = "eth9".to_owned();
    let plan = TunePlan {
        interface,
        ..plan.clone()
    };
    let made = make(&plan, &fake, false).expect("it can");
    let after = reread(tunables, &fake);
    drop(made);
    after
}

/// The facts of a host that is read again.
fn reread(tunables: &Tunables, fake: &Fake) -> Tunables {
    let machine = fake.machine();
    let is_there = |setting: &Setting| machine.values.contains_key(setting);
    let count = |name: fn(u32) -> String| {
        let is_there = |queue: &u32| is_there(&file(&name(*queue)));
        (0..512).take_while(is_there).count() as u32
    };
    let interrupts = machine.fresh.iter().filter_map(|(queue, one)| {
        let Setting::Affinity { interrupt } = one.setting else {
            return None;
        };
        let queue = *queue as usize;
        is_there(&one.setting).then_some(QueueInterrupt { interrupt, queue })
    });
    Tunables {
        interrupts: interrupts.collect(),
        rx_queues: count(tunables::rps_file),
        tx_queues: count(tunables::xps_file).max(1),
        values: machine.values.clone().into_iter().collect(),
        ..tunables.clone()
    }
}

/// Fewer queues than a user's table names are refused, so the table comes first. A plan has no
/// settings that make AF_XDP refuse.
#[test]
fn channels_are_changed_as_drivers_allow() {
    let named = |name: &str| {
        let (_, tunables) = hosts()
            .into_iter()
            .find(|(one, _)| *one == name)
            .expect("one");
        tunables
    };
    let channels = |tunables: &Tunables, goal| {
        let plan = TunePlan::new(tunables, goal, &["channels".to_owned()]);
        plan.edits().map(Edit::to_string).collect::<Vec<String>>()
    };
    assert!(channels(&named("ena"), TuneGoal::Udp).is_empty());
    let fewer = "combined channels 8 -> 4";
    assert_eq!(channels(&named("ena"), TuneGoal::AfXdp), [fewer]);
    let mut weighted = named("ena");
    for (setting, value) in &mut weighted.values {
        if let (Setting::RssTable, Value::Numbers(table)) = (setting, value) {
            table.fill(7);
        }
    }
    let steps = ["queue 7 out of the RSS table", fewer];
    assert_eq!(channels(&weighted, TuneGoal::AfXdp), steps);
    let ring = |goal| {
        let host = untouched("bnxt_en", cpus(1, 4, 1), 4).with_ring(511, 2047);
        let plan = TunePlan::new(&host, goal, &["rings".to_owned()]);
        plan.edits().map(Edit::to_string).collect::<Vec<String>>()
    };
    assert_eq!(ring(TuneGoal::Udp), ["rx ring 511 -> 2047"]);
    assert_eq!(ring(TuneGoal::AfXdp), ["rx ring 511 -> 1024"]);
}

#[test]
fn a_key_of_zeros_is_replaced_and_no_other() {
    let planned = |key: &[u8], queues| {
        let key = Value::Word(crate::facts::rss::hexadecimal(key));
        let host = untouched("virtio_net", cpus(1, 4, 1), queues).with([(Setting::RssKey, key)]);
        let plan = TunePlan::new(&host, TuneGoal::Udp, &["rss-key".to_owned()]);
        let commands = plan
            .edits()
            .map(|edit| edit.setting.command("eth0", &edit.new));
        commands.collect::<Vec<String>>()
    };
    let microsofts = "ethtool -X eth0 hkey 6d:5a:56:da:";
    let commands = planned(&[0; 52], 4);
    assert!(
        commands.len() == 1 && commands[0].starts_with(microsofts),
        "{commands:?}"
    );
    // The longer ones begin it again.
    assert!(
        commands[0].ends_with(":01:fa:6d:5a:56:da:25:5b:0e:c2:41:67:25:3d"),
        "{commands:?}"
    );
    assert!(planned(&[0; 40], 1).is_empty());
    assert!(planned(&[1; 40], 4).is_empty());
}

/// A card whose driver keeps its queues apart. A user has set some of them.
fn apart() -> Tunables {
    let queues = (0..).zip([0, 20, 0, 900, 30]);
    let queues = queues.map(|(queue, time_us)| coalescing_of(Some(queue), time_us, queue == 4));
    let mut tunables = untouched("i40e", cpus(1, 4, 1), 5)
        .with_ring(512, 4096)
        .with([coalescing(0, false)])
        .with(queues);
    tunables.interface = "eth9".to_owned();
    tunables
}

/// A user's setting of a single queue is neither changed without a reason nor lost.
#[test]
fn queues_that_differ_are_judged_apart() {
    let tunables = apart();
    let only = ["coalescing".to_owned()];
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &only);
    let commands = plan
        .edits()
        .map(|edit| edit.setting.command("eth9", &edit.new));
    assert_eq!(
        commands.collect::<Vec<String>>(),
        ["0x1", "0x4", "0x8"].map(|mask| format!(
            "ethtool -Q eth9 queue_mask {mask} --coalesce adaptive-rx off rx-usecs 40"
        ))
    );
    let before = fake(&tunables);
    let fake = Fake::new(before.clone());
    let (tuned, _) = make(&plan, &fake, false).expect("it can");
    let now = fake.machine().values;
    for (queue, time_us) in (0..).zip([40, 20, 40, 40, 30]) {
        let (setting, value) = coalescing_of(Some(queue), time_us, queue == 4);
        assert_eq!(now[&setting], value, "queue {queue}");
    }
    assert!(tuned.undo().iter().all(UndoneStep::clean));
    assert_eq!(fake.machine(), before);
    // A fixed queue now needs nothing, so only the adaptive queue may be tried.
    let mut after = tunables.clone();
    after.values = now.into_iter().collect();
    let plan = TunePlan::new(&after, TuneGoal::Udp, &only);
    let tried = plan.steps[0].edits_to_try().map(|edit| &edit.setting);
    let last = Setting::Coalescing { queue: Some(4) };
    assert_eq!(tried.collect::<Vec<_>>(), [&last]);
}

/// A setting without a rule is changed only if its stage is named. It is then made and undone as
/// all others.
#[test]
fn what_only_may_help_is_changed_where_it_is_named() {
    let tunables = small();
    let only = ["threaded-napi", "rfs"].map(str::to_owned);
    let all = TunePlan::new(&tunables, TuneGoal::Udp, &[]);
    let tried = all.steps.iter();
    let tried = tried.filter(|step| only.iter().any(|name| name == step.stage));
    let mut is_try = tried
        .clone()
        .map(|step| matches!(step.verdict, StageVerdict::Try(_)));
    assert!(is_try.all(|is_try| is_try));
    assert_eq!(tried.count(), 2);
    let is_named = |edit: &&Edit| edit.setting == file("threaded");
    assert!(!all.edits().any(|edit| is_named(&edit)));
    let named = TunePlan::new(&tunables, TuneGoal::Udp, &only).trying();
    // One file, and the table of each queue and of the machine.
    assert_eq!(named.edits().count(), 1 + 4 + 1);
}

/// Packets of the port are left out of tracking where some are tracked and its rules can be made.
#[test]
fn the_port_that_is_named_is_left_out_of_tracking() {
    let (_, tunables) = hosts().swap_remove(0);
    let verdict = |tunables: &Tunables, port| {
        let aim = Aim {
            goal: TuneGoal::Udp,
            port,
        };
        let mut plan = TunePlan::new(tunables, aim, &["notrack".to_owned()]);
        plan.steps.remove(0)
    };
    assert_eq!(
        verdict(&tunables, None).commands(),
        ["mpps tune plan --port PORT eth0"]
    );
    assert_eq!(
        verdict(&tunables, Some(53)).verdict,
        StageVerdict::Impossible
    );
    let protocol = "udp".to_owned();
    let setting = Setting::Untracked { protocol, port: 53 };
    let altered = tunables.clone().with([text(setting.clone(), "altered")]);
    let tunables = tunables.with([text(setting, "off")]);
    let step = verdict(&tunables, Some(53));
    let commands = step
        .edits_to_try()
        .map(|edit| edit.setting.command("eth0", &edit.new));
    assert_eq!(
        commands.collect::<Vec<_>>(),
        [
            "nft 'table inet mpps_untracked_udp_53 { chain prerouting { type filter hook prerouting \
             priority raw; policy accept; udp dport 53 notrack; }; chain output { type filter hook \
             output priority raw; policy accept; udp sport 53 notrack; }; }'"
        ]
    );
    assert_eq!(step.risks(), [Risk::WholeNamespace]);
    let step = verdict(&altered, Some(53));
    assert_eq!(step.verdict, StageVerdict::Impossible);
    assert!(step.why.contains("another program"), "{}", step.why);
}

#[test]
fn a_plan_that_was_carried_out_leaves_nothing_to_do() {
    for (name, tunables) in hosts() {
        for goal in [TuneGoal::Udp, TuneGoal::Tcp, TuneGoal::AfXdp] {
            let first = TunePlan::new(&tunables, goal, &[]);
            // Behind the channels come the stages about each queue.
            let now = after(&tunables, &first);
            let now = after(&now, &TunePlan::new(&now, goal, &[]));
            let again = TunePlan::new(&now, goal, &[]);
            assert_eq!(
                again.edits().count(),
                0,
                "{name}, {goal}: {}",
                shown(&again).concat()
            );
        }
    }
}

#[test]
fn no_queue_interrupts_a_far_core_or_a_second_hyper_thread() {
    let (_, tunables) = hosts().swap_remove(0);
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &["irq-affinity".to_owned()]);
    let chosen: Vec<usize> = plan
        .edits()
        .map(|edit| match &edit.new {
            Value::Set { set } if set.len() == 1 => set[0],
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        chosen.iter().all(|cpu| (32..64).contains(cpu)),
        "{chosen:?}"
    );
    assert_eq!(chosen.len(), 63);
    assert!(
        plan.steps[0].why.contains("irqbalance"),
        "{}",
        plan.steps[0].why
    );
}

/// A fake host that has what the tunables say, and whose driver makes queues anew when their number is set.
fn fake(tunables: &Tunables) -> FakeMachine {
    let mut machine = plain();
    machine.name = "eth9";
    machine.rings = tunables.queues();
    machine.values = tunables.values.iter().cloned().collect();
    let none = Value::set([]);
    let everywhere = Value::set(0..tunables.cpus.len());
    let is_there = |name: fn(u32) -> String| tunables.value(&file(&name(0))).is_some();
    for queue in 0..tunables.channels_max.max(tunables.rx_queues) {
        let known = tunables.interrupts.iter();
        let mut known = known.filter(|one| one.queue == queue as usize);
        let interrupt = known.next().map_or(1000 + queue, |one| one.interrupt);
        let of_queue = |name: fn(u32) -> String, value| {
            is_there(name).then(|| (None, file(&name(queue)), value))
        };
        let affinity = Setting::Affinity { interrupt };
        let affinity = (Some(format!("{interrupt}")), affinity, everywhere.clone());
        let files = [
            of_queue(tunables::rps_file, none.clone()),
            of_queue(tunables::flows_file, Value::Number(0)),
            of_queue(tunables::xps_file, none.clone()),
            (!tunables.interrupts.is_empty()).then_some(affinity),
        ];
        let fresh = files
            .into_iter()
            .flatten()
            .map(|(interrupt, setting, value)| {
                let one = OfQueue {
                    interrupt,
                    setting,
                    value,
                };
                (queue, one)
            });
        machine.fresh.extend(fresh);
    }
    machine
}

/// A card with more queues than near cores. A user has changed settings of a few queues.
fn many() -> Tunables {
    let mut tunables = untouched("igb", cpus(1, 4, 1), 8)
        .with_channels(8, 8)
        .with_ring(256, 4096)
        .with_table(128, 8)
        .with_fields("sd");
    tunables.interface = "eth9".to_owned();
    for (setting, value) in &mut tunables.values {
        let is_set = ["rx-1/rps_cpus", "rx-6/rps_cpus", "tx-7/xps_cpus"];
        match setting {
            Setting::File { name } if is_set.iter().any(|one| name.ends_with(one)) => {
                *value = Value::set([2]);
            }
            Setting::Affinity { interrupt: 42 | 46 } => *value = Value::set([3]),
            _ => {}
        }
    }
    tunables
}

fn begin(plan: &TunePlan, fake: &Fake) -> HostResult<Tuned> {
    let host = fake.clone();
    let host = move || Box::new(host.clone()) as Box<dyn SettingHost>;
    Tuned::begin_on(Box::new(host), plan, fake.directory(), false)
}

/// As `mpps tune apply`: each stage is planned again behind those before it.
fn apply(tunables: &Tunables, goal: TuneGoal, fake: &Fake) -> HostResult<Tuned> {
    let mut tuned = begin(&TunePlan::new(tunables, goal, &[]), fake)?;
    for stage in stages() {
        let now = reread(tunables, fake);
        let plan = TunePlan::new(&now, goal, &[stage.to_owned()]);
        for step in &plan.steps {
            tuned.make(&plan, step, false)?;
        }
    }
    Ok(tuned)
}

fn small() -> Tunables {
    let (_, mut tunables) = hosts().swap_remove(4);
    tunables.interface = "eth9".to_owned();
    tunables
}

/// i40e takes some tables only at the second attempt. A driver that takes no table is detected.
#[test]
fn a_table_that_is_forgotten_is_told_again() {
    let mut tunables = small();
    for (setting, value) in &mut tunables.values {
        if let (Setting::RssTable, Value::Numbers(table)) = (setting, value) {
            table.fill(1);
        }
    }
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &["rss-table".to_owned()]);
    let table = &plan.edits().next().expect("it is uneven").new;
    for (forgets_tables, takes) in [(1, true), (8, false)] {
        let mut machine = fake(&tunables);
        machine.forgets_tables = forgets_tables;
        let fake = Fake::new(machine);
        let made = make(&plan, &fake, false);
        assert_eq!(made.is_ok(), takes, "{made:?}");
        let now = &fake.machine().values[&Setting::RssTable];
        assert_eq!(now == table, takes);
    }
}

/// Makes all steps of a plan, as far as they go.
fn make(plan: &TunePlan, fake: &Fake, goes_on: bool) -> HostResult<(Tuned, Vec<Edited>)> {
    let mut tuned = begin(plan, fake)?;
    let mut edited = Vec::new();
    for step in &plan.steps {
        edited.extend(tuned.make(plan, step, goes_on)?);
    }
    Ok((tuned, edited))
}

/// Undoes what is left, the newest first.
fn undo_all(left: &[crate::Leftover], fake: &Fake) -> Vec<UndoneStep> {
    left.iter()
        .flat_map(|left| left.undo(fake, false))
        .collect()
}

fn lives_again(fake: &Fake) {
    let mut state = fake.state();
    assert!(state.ended, "it did not die");
    (state.end, state.ended) = (None, false);
}

/// Every moment to die at while a plan is made, or while it is put back: before each change and after it.
fn deaths(is_undone: bool) -> Vec<(Tunables, EndsAt)> {
    let mut deaths = Vec::new();
    for tunables in [small(), apart(), many()] {
        let fake = Fake::new(fake(&tunables));
        let tuned = apply(&tunables, TuneGoal::Udp, &fake).expect("it can");
        let made = fake.state().changes;
        assert!(made > 8, "{made}");
        tuned.undo();
        let all = fake.state().changes;
        let changes = match is_undone {
            true => made..all,
            false => 0..made,
        };
        for change in changes {
            let ends = [false, true].map(|done| EndsAt { change, done });
            deaths.extend(ends.map(|end| (tunables.clone(), end)));
        }
    }
    deaths
}

/// Killed at any change, before or after it was made, and then undone: the host is as it was.
#[test]
fn whoever_dies_while_it_is_made_leaves_what_can_be_put_back() {
    for (tunables, end) in deaths(false) {
        let before = fake(&tunables);
        let fake = Fake::new(before.clone());
        fake.state().end = Some(end);
        apply(&tunables, TuneGoal::Udp, &fake).expect_err("it died");
        lives_again(&fake);
        let outcomes = undo_all(&fake.all_died(), &fake);
        assert!(outcomes.iter().all(UndoneStep::finished), "{outcomes:?}");
        fake.is_again(&before);
    }
}

#[test]
fn what_somebody_changed_since_is_left_to_them() {
    let tunables = small();
    let fake = Fake::new(fake(&tunables));
    let only = ["rings", "budget"].map(str::to_owned);
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &only);
    let (tuned, _) = make(&plan, &fake, false).expect("it can");
    fake.set(Setting::RxRing, Value::Number(512));
    let undone = results(tuned.undo());
    assert_eq!(
        undone.last(),
        Some(&Undone::Changed("it is 512".to_owned()))
    );
    assert_eq!(fake.machine().values[&Setting::RxRing], Value::Number(512));
    let budget = sysctl("net.core.netdev_budget");
    assert_eq!(fake.machine().values[&budget], Value::Number(300));
}

#[test]
fn an_interface_that_has_gone_leaves_the_machine_as_it_was() {
    let tunables = small();
    let before = fake(&tunables);
    let fake = Fake::new(before.clone());
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &[]);
    let (tuned, _) = make(&plan, &fake, false).expect("it can");
    tuned.keep().expect("it can be written");
    fake.state().machine.name = "";
    // This process lives, and what was to stay is put back all the same.
    let (left, _) = leftovers_in(&fake.directory());
    let outcomes = undo_all(&left, &fake);
    assert!(outcomes.iter().all(UndoneStep::clean), "{outcomes:?}");
    let now = fake.machine().values;
    for (setting, value) in before.values {
        if matches!(setting, Setting::Sysctl { .. } | Setting::Affinity { .. }) {
            assert_eq!(now[&setting], value, "{setting:?}");
        }
    }
    assert_eq!(fake.journals(), 0);
}

/// It goes between any two changes: what is of the machine is put back, and nothing is left to do.
#[test]
fn an_interface_that_goes_in_the_middle_leaves_the_machine_as_it_was() {
    let tunables = small();
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &[]);
    let before = fake(&tunables);
    for change in 0..plan.edits().count() {
        let mut machine = before.clone();
        machine.goes_after = Some(change);
        let fake = Fake::new(machine);
        let made = make(&plan, &fake, false);
        // Behind its own settings come those of the machine, which need no interface.
        assert!(made.is_err() || change > 8, "at {change}");
        drop(made);
        for (setting, value) in &fake.machine().values {
            if matches!(setting, Setting::Sysctl { .. } | Setting::Affinity { .. }) {
                assert_eq!(*value, before.values[setting], "{setting:?} at {change}");
            }
        }
        assert_eq!(fake.journals(), 0, "at {change}");
    }
}

/// Killed at any change of an undo, before or after it was made, and undone again.
#[test]
fn whoever_dies_while_it_is_put_back_leaves_what_can_be_put_back() {
    for (tunables, end) in deaths(true) {
        let before = fake(&tunables);
        let fake = Fake::new(before.clone());
        let tuned = apply(&tunables, TuneGoal::Udp, &fake).expect("it can");
        tuned.keep().expect("it can be written");
        fake.state().end = Some(end);
        let left = fake.all_died();
        // The newest first: the claim of the interface goes last.
        let ends = [left.first(), left.last()].map(|one| one.expect("some").name());
        assert_eq!(ends, ["tune-buffers", "tune"]);
        undo_all(&left, &fake);
        lives_again(&fake);
        let (left, _) = leftovers_in(&fake.directory());
        let outcomes = undo_all(&left, &fake);
        assert!(outcomes.iter().all(UndoneStep::finished), "{outcomes:?}");
        fake.is_again(&before);
    }
}

#[test]
fn what_is_refused_is_left_out_and_the_rest_is_made() {
    let tunables = small();
    let mut machine = fake(&tunables);
    machine.stuck = Some(sysctl("net.core.netdev_budget"));
    let fake = Fake::new(machine.clone());
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &[]);
    make(&plan, &fake, false).expect_err("refused");
    fake.is_again(&machine);
    let (tuned, edited) = make(&plan, &fake, true).expect("it can");
    let (refused, made): (Vec<&Edited>, Vec<&Edited>) =
        edited.iter().partition(|edited| edited.refusal.is_some());
    assert_eq!((refused.len(), made.len()), (1, plan.edits().count() - 1));
    assert!(
        refused[0].edit.starts_with("net.core.netdev_budget "),
        "{refused:?}"
    );
    tuned.keep().expect("it can be written");
    // A change that was kept blocks the next one.
    let error = make(&plan, &fake, true).expect_err("taken");
    assert!(error.to_string().contains("mpps tune undo"), "{error}");
    let outcomes = undo_all(&fake.all_died(), &fake);
    assert!(outcomes.iter().all(UndoneStep::clean), "{outcomes:?}");
    assert_eq!(fake.machine(), machine);
}

/// Each setting is read back. Another value than the one written is an error, and everything is put
/// back.
#[test]
fn a_setting_that_takes_another_value_is_found_out() {
    let tunables = small();
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &[]);
    let mut found = 0;
    for edit in plan.edits() {
        let other = match edit.new {
            Value::Numbers(_) => continue,
            Value::Number(_) => Value::Number(12_345),
            Value::Switch(is_on) => Value::Switch(!is_on),
            _ => Value::set([63]),
        };
        let mut machine = fake(&tunables);
        machine.alters = Some((edit.setting.clone(), other));
        let fake = Fake::new(machine.clone());
        let error = make(&plan, &fake, false).expect_err("it has another");
        assert!(error.to_string().contains("has another"), "{error}");
        // It cannot be given back either; the rest is as it was.
        machine.values.remove(&edit.setting);
        let mut now = fake.machine();
        now.values.remove(&edit.setting);
        assert_eq!(now.values, machine.values, "{edit}");
        found += 1;
    }
    assert!(found > 5, "{found}");
}

/// The table that gives a receiver a queue for itself is not made even.
#[test]
fn what_a_receiver_has_set_is_not_changed_beside_it() {
    let tunables = small();
    let fake = Fake::new(fake(&tunables));
    let table = |queues: &[u32]| {
        let queues = queues.iter().cycle().take(128).copied();
        Value::Numbers(queues.collect())
    };
    let edit = Edit::new(
        Setting::RssTable,
        table(&[0, 1, 2, 3]),
        table(&[0, 1, 2, 0]),
    );
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &["rings".to_owned()]);
    let mut carve_out = plan.change_on(&fake, None).expect("it is there");
    carve_out.name = "carve-out".to_owned();
    carve_out.edits = vec![edit];
    let carved = fake.apply(&carve_out).expect("it can");
    let carved_machine = fake.machine();
    let only = ["rings", "rss-table", "budget"].map(str::to_owned);
    let plan = TunePlan::new(&reread(&tunables, &fake), TuneGoal::Udp, &only);
    let error = make(&plan, &fake, false).expect_err("it is in the way");
    assert!(error.to_string().contains("end process"), "{error}");
    assert_eq!(fake.machine(), carved_machine);
    let (tuned, edited) = make(&plan, &fake, true).expect("it can");
    let refused = edited.iter().filter(|edited| edited.refusal.is_some());
    let refused: Vec<&str> = refused.map(|edited| edited.edit.as_str()).collect();
    assert_eq!(refused, ["rings", "rss-table"]);
    assert!(tuned.has_changed());
    tuned.undo();
    carved.undo();
    assert_eq!(
        fake.machine().values[&Setting::RssTable],
        table(&[0, 1, 2, 3])
    );
}

#[test]
fn the_last_step_goes_alone() {
    let tunables = small();
    let before = fake(&tunables);
    let fake = Fake::new(before.clone());
    let only = ["rings", "budget"].map(str::to_owned);
    let plan = TunePlan::new(&tunables, TuneGoal::Udp, &only);
    let (mut tuned, _) = make(&plan, &fake, false).expect("it can");
    let undone = tuned.undo_last();
    assert_eq!(undone.len(), 2, "{undone:?}");
    assert_eq!(fake.machine().values[&Setting::RxRing], Value::Number(4096));
    assert!(tuned.has_changed());
    assert_eq!(tuned.undo_last().len(), 1);
    assert!(!tuned.has_changed() && tuned.undo_last().is_empty());
    assert_eq!(fake.machine(), before);
}

proptest! {
    // Each case writes a journal for each edit.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever is set, a plan changes nothing that is not there, nothing to what it is already, and
    /// after it was carried out there is nothing left to do; undoing it is the host as it was.
    #[test]
    fn plans_are_idempotent_and_can_be_undone(
        host in 0_usize..6,
        goal in prop_oneof![Just(TuneGoal::Udp), Just(TuneGoal::Tcp), Just(TuneGoal::AfXdp)],
        numbers in prop::collection::vec(0_u32..20_000, 200),
    ) {
        let (_, mut tunables) = hosts().swap_remove(host);
        tunables.interface = "eth9".to_owned();
        let (queues, cpus) = (tunables.queues(), tunables.cpus.len() as u32);
        for ((setting, value), number) in tunables.values.iter_mut().zip(numbers.iter().cycle()) {
            match (&*setting, &mut *value) {
                (Setting::Channels, _) => {}
                (_, Value::Number(now)) => *now = (*number).into(),
                (Setting::File { .. }, Value::Set { set }) => {
                    set.retain(|cpu| *cpu > 3);
                    set.splice(0..0, (0..4).filter(|bit| number >> bit & 1 == 1));
                }
                (Setting::Affinity { .. }, _) => *value = Value::set([(number % cpus) as usize]),
                (Setting::HashFields { .. }, _) => {
                    *value = typed(setting, ["sd", "sdfn"][*number as usize % 2]);
                }
                // Half of the tables are the kernel's own.
                (Setting::RssTable, Value::Numbers(table)) if number % 2 == 1 => {
                    let entries = table.iter_mut().zip(numbers.iter().cycle());
                    entries.for_each(|(entry, number)| *entry = number % queues);
                }
                (Setting::Coalescing { queue: None }, Value::Numbers(words)) => {
                    (words[0], words[9]) = (number % 1000, number % 2);
                }
                _ => {}
            }
        }
        let plan = TunePlan::new(&tunables, goal, &[]);
        for edit in plan.edits() {
            prop_assert_eq!(tunables.value(&edit.setting), Some(&edit.old));
            prop_assert_ne!(&edit.old, &edit.new);
        }
        let fake = Fake::new(fake(&tunables));
        let before = fake.machine();
        let tuned = apply(&tunables, goal, &fake).expect("it can");
        let again = TunePlan::new(&reread(&tunables, &fake), goal, &[]);
        prop_assert_eq!(again.edits().count(), 0, "{}", shown(&again).concat());
        prop_assert!(tuned.undo().iter().all(UndoneStep::clean));
        prop_assert_eq!(fake.machine(), before);
    }
}
