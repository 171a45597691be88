module example.com/consumer

go 1.26.6

require (
	github.com/holdfast-io/holdfast v0.0.0
	github.com/pulumi/pulumi/sdk/v3 v3.276.0
)

replace github.com/holdfast-io/holdfast => ../../..
