package handover_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/stacks/internal/handover"
)

// world is what a handover works on: objects in the state, marked or not, what keeps them, and whose fields they have.
type world struct {
	file    handover.Target
	cascade bool // what an ordinary update with GitOps as the owner makes of the keeper
	objects []object
	keeper  keeper
	running bool // the keeper's Applications or Kustomizations are in the cluster
}

type object struct{ inState, retained, byPulumi, byKeeper bool }

type keeper struct{ inState, cascades bool }

const objects = 3

// deployed is a world in which everything is Pulumi's; kept one in which all is kept from Git.
func deployed(cascade bool) *world {
	w := &world{file: handover.Pulumi, cascade: cascade, objects: make([]object, objects)}
	for i := range w.objects {
		w.objects[i] = object{inState: true, byPulumi: true}
	}
	return w
}

func kept(cascade bool) *world {
	w := &world{
		file: handover.GitOps, cascade: cascade, objects: make([]object, objects),
		keeper: keeper{inState: true, cascades: cascade}, running: true,
	}
	for i := range w.objects {
		w.objects[i] = object{byKeeper: true}
	}
	return w
}

func (w *world) view(target handover.Target) handover.View {
	v := handover.View{Objects: objects, Declared: w.file == target, Keeper: w.keeper.inState, Adopted: w.running}
	for _, o := range w.objects {
		if o.inState {
			v.InState++
			if o.retained {
				v.Retained++
				v.Unsettled++
			}
		}
		v.Adopted = v.Adopted && o.byKeeper
		if (target == handover.GitOps && o.byPulumi) || (target == handover.Pulumi && o.byKeeper) {
			v.Stale++
		}
	}
	if w.running {
		v.Keeping = 1
	}
	v.KeeperShared = w.keeper == keeper{inState: true}
	v.KeeperSettled = w.keeper == w.settled(target)
	return v
}

func (w *world) settled(target handover.Target) keeper {
	if target == handover.Pulumi {
		return keeper{}
	}
	return keeper{inState: true, cascades: w.cascade}
}

// effects are the single changes that a step makes, in their order. An interruption comes between two of them. Each says
// whether it would do harm.
func (w *world) effects(target handover.Target, step handover.Step) []func() error {
	var effects []func() error
	each := func(change func(*object) error) {
		for i := range w.objects {
			effects = append(effects, func() error { return change(&w.objects[i]) })
		}
	}
	setKeeper := func(k keeper) {
		effects = append(effects, func() error {
			if w.keeper.inState && !k.inState && w.keeper.cascades {
				return fmt.Errorf("the keeper takes its objects with it")
			}
			w.keeper = k
			return nil
		})
	}
	switch step {
	case handover.StepShare:
		each(func(o *object) error { o.inState, o.retained, o.byPulumi = true, true, true; return nil })
		setKeeper(keeper{inState: true})
	case handover.StepAdopt: // the controllers' doing
		effects = append(effects, func() error { w.running = true; return nil })
		each(func(o *object) error { o.byKeeper = true; return nil })
	case handover.StepDeclare:
		effects = append(effects, func() error { w.file = target; return nil })
	case handover.StepSettle:
		if target == handover.Pulumi {
			each(func(o *object) error { o.retained = false; return nil })
			setKeeper(keeper{})
			break
		}
		setKeeper(w.settled(target))
		each(func(o *object) error {
			if o.inState && !o.retained {
				return fmt.Errorf("an object that is not retained is deleted")
			}
			o.inState, o.retained = false, false
			return nil
		})
	case handover.StepWithdraw:
		effects = append(effects, func() error { w.running = false; return nil })
	case handover.StepRelease:
		each(func(o *object) error {
			if target == handover.GitOps {
				o.byPulumi = false
			} else {
				o.byKeeper = false
			}
			return nil
		})
	default:
	}
	return effects
}

// check holds what must be true at every moment.
func (w *world) check() error {
	for i, o := range w.objects {
		switch {
		case !o.inState && !w.keeper.inState:
			return fmt.Errorf("object %d is nobody's", i)
		case !o.inState && !o.byKeeper:
			return fmt.Errorf("object %d left the state before it was adopted", i)
		case !o.byPulumi && !o.byKeeper:
			return fmt.Errorf("object %d has fields of nobody", i)
		}
	}
	return nil
}

const enough = 40

// hand runs the command until it is done, or until it has made so many effects; it says whether it is done.
func (w *world) hand(target handover.Target, effects int) (done bool, err error) {
	for range enough {
		step, err := handover.Next(target, w.view(target))
		if err != nil || step == handover.StepDone {
			return step == handover.StepDone, err
		}
		for _, effect := range w.effects(target, step) {
			if effects == 0 {
				return false, nil
			}
			effects--
			if err := effect(); err != nil {
				return false, fmt.Errorf("%s: %w", step, err)
			}
			if err := w.check(); err != nil {
				return false, fmt.Errorf("%s: %w", step, err)
			}
		}
	}
	return false, fmt.Errorf("not done after %d steps: %+v", enough, w.view(target))
}

const unlimited = 1 << 20

func TestAHandoverInterruptedAnywhereEndsTheSameWhenRunAgain(t *testing.T) {
	for _, cascade := range []bool{false, true} {
		for _, from := range []struct {
			target handover.Target
			start  func(bool) *world
		}{{handover.GitOps, deployed}, {handover.Pulumi, kept}} {
			want := from.start(cascade)
			done, err := want.hand(from.target, unlimited)
			require.NoError(t, err)
			require.True(t, done)
			for effects := range enough {
				w := from.start(cascade)
				_, err := w.hand(from.target, effects)
				require.NoErrorf(t, err, "to %s, stopped after %d effects", from.target, effects)
				_, err = w.hand(from.target, unlimited)
				require.NoErrorf(t, err, "to %s, resumed after %d effects", from.target, effects)
				require.Equalf(t, want, w, "to %s, resumed after %d effects", from.target, effects)
			}
		}
	}
}

func TestAHandoverMayTurnRoundAnywhereAndAsOftenAsOneLikes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cascade := rapid.Bool().Draw(t, "cascade")
		w := deployed(cascade)
		for range rapid.IntRange(0, 6).Draw(t, "turns") {
			target := rapid.SampledFrom([]handover.Target{handover.Pulumi, handover.GitOps}).Draw(t, "target")
			_, err := w.hand(target, rapid.IntRange(0, enough).Draw(t, "effects"))
			require.NoError(t, err)
		}
		for _, end := range []struct {
			target handover.Target
			want   *world
		}{{handover.GitOps, kept(cascade)}, {handover.Pulumi, deployed(cascade)}} {
			done, err := w.hand(end.target, unlimited)
			require.NoError(t, err)
			require.True(t, done)
			require.Equal(t, end.want, w)
		}
	})
}

func TestForecastNamesTheStepsInTheirOrder(t *testing.T) {
	for _, tc := range []struct {
		target handover.Target
		from   *world
		want   []handover.Step
	}{
		{handover.GitOps, deployed(false), []handover.Step{"share", "adopt", "declare", "settle", "release"}},
		{handover.Pulumi, kept(true), []handover.Step{"share", "declare", "settle", "withdraw", "release"}},
		{handover.GitOps, kept(false), nil},
		{handover.Pulumi, deployed(false), nil},
	} {
		steps, err := handover.Forecast(tc.target, tc.from.view(tc.target))
		require.NoError(t, err)
		require.Equal(t, tc.want, steps)
	}
}

func TestNothingIsNoHandover(t *testing.T) {
	for _, target := range []handover.Target{handover.Pulumi, handover.GitOps} {
		_, err := handover.Next(target, handover.View{Objects: objects})
		require.ErrorIs(t, err, handover.ErrNothing)
	}
}
