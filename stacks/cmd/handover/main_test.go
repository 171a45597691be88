package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/stacks/internal/handover"
	"github.com/holdfast-io/holdfast/stacks/platform"
)

const stackFile = `config:
  holdfast:operator: {image: "example.com/operator:1"}
  holdfast:leaseService: {image: "example.com/lease-service:1"}
  holdfast:gitops: {flavour: argocd, repoURL: "https://git.example.com/x.git", path: stacks/gitops/dev}
  holdfast:tenants:
    - {name: team-a}
    - {name: team-b, ownership: pulumi}
`

func TestOptions(t *testing.T) {
	for _, tc := range []struct {
		options options
		want    string
	}{
		{options{}, `-to is ""; allowed: pulumi, gitops`},
		{options{to: "git"}, `-to is "git"; allowed: pulumi, gitops`},
		{options{to: handover.GitOps, destroy: true}, "-destroy needs -to pulumi"},
		{options{to: handover.Pulumi, destroy: true, tenant: "a"}, "-destroy needs -to pulumi, and no -tenant"},
		{options{to: handover.Pulumi, destroy: true, dryRun: true}, "leave out -destroy"},
		{options{to: handover.GitOps, unlock: true, dryRun: true}, "leave out -unlock"},
	} {
		require.ErrorContains(t, tc.options.complete(), tc.want)
	}
	o := options{to: handover.GitOps, stack: "prod", project: "x"}
	require.NoError(t, o.complete())
	require.Equal(t, "x/Pulumi.prod.yaml", o.file)
}

func TestTheLockIsNotInherited(t *testing.T) {
	file, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer file.Close()
	shared, err := unix.Dup(int(file.Fd())) // as a shell hands it on
	require.NoError(t, err)
	defer func() { _ = unix.Close(shared) }()
	flags := func() int {
		flags, err := unix.FcntlInt(uintptr(shared), unix.F_GETFD, 0)
		require.NoError(t, err)
		return flags & unix.FD_CLOEXEC
	}
	require.Zero(t, flags())
	require.NoError(t, (&options{lock: shared}).keepLock())
	require.NotZero(t, flags())

	require.NoError(t, (&options{}).keepLock(), "there is none")
	require.ErrorContains(t, (&options{lock: 1 << 20}).keepLock(), "-lock is 1048576; allowed is the descriptor of an open file")
}

func TestWhatMoves(t *testing.T) {
	config, err := parse([]byte(stackFile))
	require.NoError(t, err)
	a, b := platform.TenantUnit("team-a"), platform.TenantUnit("team-b")
	for _, tc := range []struct {
		options options
		want    []platform.Unit
		file    []string
	}{
		{options{to: handover.GitOps}, []platform.Unit{platform.PlatformUnit, a}, []string{"  holdfast:ownership: gitops\n", "{name: team-a}", "{name: team-b, ownership: pulumi}"}},
		{options{to: handover.Pulumi, destroy: true}, []platform.Unit{platform.PlatformUnit, a, b}, []string{"holdfast:ownership: pulumi", "{name: team-a}", "{name: team-b, ownership: pulumi}"}},
		{options{to: handover.GitOps, tenant: "team-a"}, []platform.Unit{a}, []string{"{ownership: gitops, name: team-a}", "{name: team-b, ownership: pulumi}"}},
		{options{to: handover.GitOps, tenant: "team-b"}, []platform.Unit{b}, []string{"{name: team-a}", "{name: team-b, ownership: gitops}"}},
	} {
		units, err := chooseUnits(config, tc.options)
		require.NoError(t, err)
		require.Equal(t, tc.want, units)
		m := &mover{options: tc.options, units: units}
		file, err := m.declare([]byte(stackFile), config)
		require.NoError(t, err)
		for _, text := range tc.file {
			require.Contains(t, string(file), text)
		}
		require.Equal(t, tc.options.tenant == "", strings.Contains(string(file), "holdfast:ownership"))
	}
	_, err = chooseUnits(config, options{tenant: "team-x"})
	require.EqualError(t, err, `-tenant is "team-x"; allowed: team-a, team-b`)
}

func TestWhatIsSaidOfTheStacksFile(t *testing.T) {
	inCheckout := &platform.GitOps{RepoURL: "https://git.example.com/x.git", Path: "stacks/gitops/prod"}
	elsewhere := &platform.GitOps{RepoURL: "https://git.example.com/x.git", Path: "envs/prod"}
	for _, tc := range []struct {
		options        options
		config         *platform.GitOps
		render, commit string
	}{
		{options{stack: "prod"}, inCheckout, "make render ENV=prod", "Commit it"},
		{options{stack: "prod", project: "."}, elsewhere, "make render ENV=prod OUT=CLONE/envs/prod with a clone of https://git.example.com/x.git for CLONE", "Commit it"},
		{options{stack: "prod", project: "/x", file: "/x/Pulumi.prod.yaml"}, inCheckout, "make render ENV=prod", "Commit it"},
		{
			options{stack: "dev", project: "/x", file: "/state/Pulumi.dev.yaml"},
			inCheckout,
			"make render ENV=dev LIVE=1 OUT=CLONE/stacks/gitops/prod with a clone of https://git.example.com/x.git for CLONE",
			"It is made from /x/Pulumi.dev.yaml: change ownership there as well, and commit that",
		},
	} {
		tc.options.to = handover.GitOps
		require.NoError(t, tc.options.complete())
		require.Equal(t, tc.render, tc.options.renderCommand(tc.config))
		require.Equal(t, tc.commit, tc.options.keepOwner())
	}
}

func TestDescribeNamesTheFolderAndTheRepository(t *testing.T) {
	config, err := parse([]byte(stackFile))
	require.NoError(t, err)
	const where = "stacks/gitops/dev of https://git.example.com/x.git at main"
	require.Contains(t, (&mover{options: options{to: handover.GitOps}}).describe(handover.StepShare, config), "the same ones as in "+where)
	require.Contains(t, (&mover{options: options{to: handover.Pulumi}}).describe(handover.StepWithdraw, config), "keeps the objects from "+where)
}

func TestWhatIsRecorded(t *testing.T) {
	config, err := parse([]byte(stackFile))
	require.NoError(t, err)
	m := &mover{options: options{to: handover.GitOps}, units: []platform.Unit{platform.PlatformUnit, platform.TenantUnit("team-a")}}
	require.NoError(t, m.record([]byte(stackFile), config))
	require.Len(t, m.what.Objects, len(m.files))
	require.Contains(t, m.files, "team-a/14-leaseservice-team-a.yaml")
	require.Contains(t, m.files, "crds/00-customresourcedefinition-leaseservices.dist.system.yaml")
	require.NotContains(t, m.files, "team-b/14-leaseservice-team-b.yaml")
	require.Equal(t, m.what.Shared, m.what.Settled, "without a cascade")
	require.NotEmpty(t, m.what.Shared)
	retained := 0
	for _, object := range m.what.Objects {
		if object.Retained {
			require.Contains(t, object.URN, "CustomResourceDefinition")
			retained++
		}
	}
	require.Positive(t, retained, "CRDs are retained by default, whoever owns them")
}

func TestGitHoldsWhatIsRenderedAndNothingElse(t *testing.T) {
	config, err := parse([]byte(stackFile))
	require.NoError(t, err)
	m := &mover{options: options{to: handover.GitOps}, units: []platform.Unit{platform.PlatformUnit, platform.TenantUnit("team-a")}}
	require.NoError(t, m.record([]byte(stackFile), config))
	files := maps.Clone(m.files)
	files["team-b/foreign.yaml"], files["top.yaml"] = nil, nil
	require.Empty(t, m.wrong(files), "what does not move is nobody's concern")

	const service = "team-a/14-leaseservice-team-a.yaml"
	files[service] = append(slices.Clone(files[service]), '\n')
	delete(files, "holdfast-system/01-namespace-holdfast-system.yaml")
	for _, name := range []string{"team-a/x.yaml", "team-a/x.json", "team-a/deep/er/x.yml", "crds/kustomization.yaml", "team-a/link"} {
		files[name] = nil
	}
	require.Equal(t, []string{
		"crds/kustomization.yaml is not rendered", "holdfast-system/01-namespace-holdfast-system.yaml is missing", service + " differs",
		"team-a/deep/er/x.yml is not rendered", "team-a/link is not rendered", "team-a/x.json is not rendered", "team-a/x.yaml is not rendered",
	}, m.wrong(files))
}

func TestAClusterThatIsNotKnownIsNotGuessed(t *testing.T) {
	_, err := connect([]byte(stackFile + "  kubernetes:context: {secure: v1:x}\n"))
	require.ErrorContains(t, err, "kubernetes:context: is encrypted")
}

func TestACommandThatCannotBeginSaysWhy(t *testing.T) {
	err := run(t.Context(), options{to: handover.GitOps, stack: "moon", project: t.TempDir()}, &strings.Builder{})
	require.ErrorContains(t, err, `stack "moon"`)
}
