//! Calls that only one design has, and races between two steps of one.

use super::*;

fn use_lease(state: &State<Freehold<StepPlatform>>, _op: Op, _victims: &Victims, cpu: CpuId) {
    let mut lease = state.frames.lease(cpu).unwrap();
    for _ in 0..2 {
        let taken = std::iter::from_fn(|| lease.alloc(Request::default()).ok()).take(3);
        let taken: Vec<Pfn> = taken.collect();
        taken.into_iter().for_each(|pfn| lease.free(pfn, Order::ZERO).unwrap());
        lease.renew();
    }
}

#[test]
fn others_are_served_wherever_the_owner_of_a_lease_stops() {
    for kind in [Kind::Stop, Kind::Interrupt] {
        let mut all = Tally::default();
        for of in PROBES {
            for seed in 0..SEEDS {
                all += explore(seed, (Op::Lease, of, kind), use_lease).1;
            }
        }
        println!("leases, {kind:?}: {all:?}");
        assert!(all.served > 1000 && all.waits > 0, "{all:?}");
    }
}

/// While a range is searched where frames have just been freed remotely, their holder harvests them
/// and allocates them again, as part of larger blocks. For a moment they look like a hole.
#[test]
fn what_is_handed_out_again_does_not_look_like_a_hole() {
    let order = Order::new(3);
    let mut handed_out = 0;
    for step in 0.. {
        let state = State::<Freehold<StepPlatform>>::empty();
        run_on(0);
        while let Ok(pfn) = state.frames.alloc(Request::default()) {
            state.held.borrow_mut().push((pfn, Order::ZERO));
        }
        let span = PAGEBLOCK..PAGEBLOCK + 64;
        state.held.borrow_mut().retain(|(pfn, _)| !span.contains(&pfn.get()));
        run_on(1);
        span.clone().for_each(|frame| state.frames.free(Pfn::new(frame), Order::ZERO).unwrap());
        let state = Rc::new(state);
        let meanwhile = {
            let state = Rc::clone(&state);
            move || {
                run_on(0);
                while let Ok(pfn) = state.frames.alloc(Request::new(order).nowait()) {
                    state.held.borrow_mut().push((pfn, order));
                }
            }
        };
        let request = RangeRequest::new(FrameCount::new(64)).at(Pfn::new(span.start));
        let call = || state.frames.alloc_range(request, &*state);
        let (result, was_stopped) = stop_at(step, Kind::Stop, meanwhile, call);
        assert_ne!(result, Some(Err(Error::ForeignFrame)), "step {step}");
        if !was_stopped {
            assert!(handed_out > 0, "nothing was handed out while the range was looked for");
            return;
        }
        handed_out += state.held.borrow().iter().filter(|block| block.1 == order).count();
    }
}
