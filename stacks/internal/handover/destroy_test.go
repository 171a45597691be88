package handover_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/stacks/internal/handover"
)

func TestWhatIsInTheWayOfADestruction(t *testing.T) {
	for _, tc := range []struct {
		name string
		view handover.View
		want handover.Step
	}{
		{"all is Pulumi's", handover.View{InState: 3, Declared: true}, handover.StepDone},
		{"all is Pulumi's, whatever the file says", handover.View{InState: 3}, handover.StepDone},
		{"not all has been deployed, or is left", handover.View{InState: 1, Declared: true}, handover.StepDone},
		{"and others have fields of it", handover.View{InState: 1, Declared: true, Stale: 1}, handover.StepDone},
		{"nothing is left", handover.View{}, handover.StepDone},
		{"nothing is left, and others keep it", handover.View{Keeping: 1, Stale: 3}, handover.StepDone},
		{"an object may be there that the state has not", handover.View{InState: 1, Begun: 1, Declared: true}, handover.StepSettle},
		{"and it may be the first", handover.View{Begun: 1, Declared: true}, handover.StepSettle},
		{"and the file has it deployed by others", handover.View{InState: 1, Begun: 1}, handover.StepDeclare},
		{"an object would stay behind", handover.View{InState: 1, Retained: 1, Unsettled: 1, Declared: true}, handover.StepSettle},
		{"GitOps keeps some", handover.View{InState: 1, Declared: true, Keeper: true, Keeping: 1}, handover.StepShare},
		{"GitOps keeps some by what the state has not", handover.View{InState: 1, Declared: true, Keeping: 1}, handover.StepShare},
		{"GitOps still takes its own away", handover.View{InState: 3, Declared: true, KeeperSettled: true, Keeping: 1}, handover.StepWithdraw},
		{"all has been taken back", handover.View{InState: 3, Declared: true, KeeperSettled: true, Stale: 3}, handover.StepRelease},
	} {
		tc.view.Objects = objects
		require.Equal(t, tc.want, handover.NextToDestroy(tc.view), tc.name)
	}
}

// makeWay runs the command until the stack can be destroyed, or until it has made so many effects; it says which.
func (w *world) makeWay(effects int) (free bool, err error) {
	for range enough {
		step := handover.NextToDestroy(w.view(handover.Pulumi))
		if step == handover.StepDone {
			return true, nil
		}
		for _, effect := range w.effects(handover.Pulumi, step) {
			if effects == 0 {
				return false, nil
			}
			effects--
			if err := effect(); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

func TestADestructionInterruptedAnywhereGoesOn(t *testing.T) {
	for _, cascade := range []bool{false, true} {
		for _, from := range []func(bool) *world{deployed, kept} {
			for effects := range enough {
				w := from(cascade)
				_, err := w.makeWay(effects)
				require.NoErrorf(t, err, "stopped after %d effects", effects)
				free, err := w.makeWay(unlimited)
				require.NoErrorf(t, err, "resumed after %d effects", effects)
				require.True(t, free)
				require.Equal(t, deployed(cascade).objects, w.objects, "all is the stack's, and nothing stays behind")
				require.False(t, w.keeper.inState || w.running)
				for i := range w.objects {
					w.objects[i].inState = false
					require.Equal(t, handover.StepDone, handover.NextToDestroy(w.view(handover.Pulumi)), "%d objects are gone", i+1)
				}
			}
		}
	}
}
