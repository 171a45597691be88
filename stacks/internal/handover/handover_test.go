package handover_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/stacks/internal/handover"
)

const (
	deployment  = "kubernetes:apps/v1:Deployment"
	application = "kubernetes:argoproj.io/v1alpha1:Application"
	patch       = "kubernetes:core/v1:ConfigMapPatch"
)

func urn(stack, name string) string {
	return "urn:pulumi:" + stack + "::holdfast::holdfast:index:Platform$" + deployment + "::" + name
}

func keeperURN(stack, name string) string {
	return "urn:pulumi:" + stack + "::holdfast::holdfast:index:GitOpsHandover$" + application + "::" + name
}

func TestViewOfAState(t *testing.T) {
	state, err := handover.ParseState(json.RawMessage(`{"resources": [
		{"urn": "urn:pulumi:dev::holdfast::pulumi:pulumi:Stack::holdfast-dev", "type": "pulumi:pulumi:Stack"},
		{"urn": "` + urn("dev", "one") + `", "type": "` + deployment + `", "custom": true, "retainOnDelete": true},
		{"urn": "` + urn("dev", "two") + `", "type": "` + deployment + `", "custom": true},
		{"urn": "` + urn("dev", "old") + `", "type": "` + deployment + `", "custom": true, "delete": true},
		{"urn": "` + keeperURN("dev", "app") + `", "type": "` + application + `", "custom": true, "inputs": {"__x": 1, "spec": {"n": 2}}}
	], "pending_operations": [
		{"type": "creating", "resource": {"urn": "` + urn("dev", "old") + `"}},
		{"type": "creating", "resource": {"urn": "` + urn("dev", "two") + `"}},
		{"type": "deleting", "resource": {"urn": "` + urn("dev", "new") + `"}}
	]}`))
	require.NoError(t, err)
	require.Equal(t, 3, state.Pending)

	keeper := handover.Resource{URN: keeperURN("render", "app"), Fields: map[string]any{"spec": map[string]any{"n": int64(2)}}}
	other := keeper
	other.Fields = map[string]any{"spec": map[string]any{"n": int64(3)}}
	move := handover.Move{
		Objects: []handover.Resource{{URN: urn("render", "one")}, {URN: urn("render", "two")}, {URN: urn("render", "old")}, {URN: urn("render", "new")}},
		Shared:  []handover.Resource{keeper}, Settled: []handover.Resource{other},
	}
	require.Equal(t, handover.View{
		Objects: 4, InState: 2, Retained: 1, Unsettled: 1, Begun: 1, Keeper: true, KeeperShared: true,
	}, move.ViewState(state))
	move.Others = []string{"spec", "n"}
	require.True(t, move.ViewState(state).KeeperSettled, "the field in which they differ is somebody else's")
	move.Others, move.Settled = nil, nil
	require.False(t, move.ViewState(state).KeeperSettled, "one is there that an ordinary update does not leave")
}

func TestPendingOperationsAreDroppedAndNothingElse(t *testing.T) {
	dropped, err := handover.DropPending(json.RawMessage(`{"manifest": {"time": "x"}, "resources": [{"urn": "u"}], "pending_operations": [{}]}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"manifest": {"time": "x"}, "resources": [{"urn": "u"}]}`, string(dropped))
}

func TestGuard(t *testing.T) {
	op := func(kind, typeToken string) handover.Op {
		name := urn("dev", "operator")
		if typeToken == application || typeToken == patch {
			name = keeperURN("dev", "operator")
		}
		return handover.Op{Kind: kind, Type: typeToken, URN: name, Custom: true}
	}
	retained := op("delete", deployment)
	retained.Retained = true
	proven, changed := op("update", deployment), op("update", deployment)
	proven.Proven, changed.Changes = true, []string{"spec.replicas"}
	component := op("delete", "holdfast:index:Platform")
	component.Custom = false
	for _, tc := range []struct {
		name    string
		target  handover.Target
		step    handover.Step
		op      handover.Op
		refused string
	}{
		{"an object that stays as it is", handover.GitOps, handover.StepShare, op("same", deployment), ""},
		{"a keeper that is made", handover.GitOps, handover.StepShare, op("create", application), ""},
		{"a keeper that changes", handover.GitOps, handover.StepSettle, op("update", application), ""},
		{"an object that leaves, retained", handover.GitOps, handover.StepSettle, retained, ""},
		{"an object that was not waited for", handover.Pulumi, handover.StepShare, proven, ""},
		{"a component that leaves", handover.GitOps, handover.StepSettle, component, ""},
		{"a provider", handover.GitOps, handover.StepSettle, op("delete", "pulumi:providers:kubernetes"), ""},
		{"an object that is taken", handover.Pulumi, handover.StepShare, op("create", deployment), ""},
		{"a keeper that goes", handover.Pulumi, handover.StepSettle, op("delete", application), ""},
		{"what was added to Argo CD's own configuration", handover.Pulumi, handover.StepSettle, op("delete", patch), ""},

		{"an object that leaves unmarked", handover.GitOps, handover.StepSettle, op("delete", deployment), "it would be deleted from the cluster"},
		{"an object that leaves too early", handover.GitOps, handover.StepShare, retained, "nothing leaves the stack in this step"},
		{"a keeper that goes too early", handover.GitOps, handover.StepShare, op("delete", application), "nothing leaves the stack in this step"},
		{"a keeper that goes too early on the way back", handover.Pulumi, handover.StepShare, op("delete", application), "nothing leaves the stack in this step"},
		{"an object that leaves on the way back", handover.Pulumi, handover.StepSettle, retained, "only what kept the objects leaves"},
		{"an object that changes", handover.GitOps, handover.StepShare, changed, "it would change [spec.replicas]"},
		{"a replacement", handover.Pulumi, handover.StepShare, op("replace", deployment), "replaces nothing"},
		{"a replacement of a keeper", handover.Pulumi, handover.StepShare, op("create-replacement", application), "replaces nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			problems := handover.Guard(tc.target, tc.step, []handover.Op{tc.op})
			if tc.refused == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Contains(t, problems[0], tc.op.Kind)
			require.Contains(t, problems[0], "operator: ")
			require.Contains(t, problems[0], tc.refused)
		})
	}
}

func TestDifferences(t *testing.T) {
	object := func(change func(object, metadata, spec map[string]any)) map[string]any {
		metadata := map[string]any{"name": "a", "labels": map[string]any{"app": "x"}}
		spec := map[string]any{"replicas": int64(2), "args": []any{"--a", "--b"}}
		out := map[string]any{"kind": "Deployment", "metadata": metadata, "spec": spec}
		change(out, metadata, spec)
		return out
	}
	same := object(func(_, _, _ map[string]any) {})
	require.Empty(t, handover.Differences(same, object(func(o, m, _ map[string]any) {
		o["status"] = map[string]any{"ready": true}
		m["resourceVersion"], m["generation"] = "7", int64(3)
		m["annotations"] = map[string]any{"argocd.argoproj.io/tracking-id": "x", "pulumi.com/waitFor": "y"}
		m["labels"] = map[string]any{"app": "x", "kustomize.toolkit.fluxcd.io/name": "z"}
	})), "what the API server and the owners write for themselves")
	require.Equal(t, []string{
		`metadata.annotations: nothing now, {"a.b/c":"1"} then`,
		`spec.args[1]: "--b" now, "--c" then`,
		`spec.replicas: 2 now, nothing then`,
	}, handover.Differences(same, object(func(_, m, s map[string]any) {
		m["annotations"] = map[string]any{"a.b/c": "1"}
		s["args"] = []any{"--a", "--c"}
		delete(s, "replicas")
	})))
	require.Equal(t, []string{`metadata.labels.[a.b/c]: nothing now, "1" then`}, handover.Differences(same,
		object(func(_, m, _ map[string]any) { m["labels"] = map[string]any{"app": "x", "a.b/c": "1"} })))
}
