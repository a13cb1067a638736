// Command kubernetes is every Kubernetes program that the test cluster runs, in one binary:
// the first argument picks the program, the others are its own. One binary links the shared
// packages once, so that it builds in a third of the time and space of six.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	program := chosen()

	// The programs read os.Args themselves: kubectl for its plugins, the kubelet for its flags.
	os.Args = os.Args[1:]

	os.Exit(cli.Run(program()))
}

func chosen() func() *cobra.Command {
	if len(os.Args) > 1 {
		if program, known := programs[os.Args[1]]; known {
			return program
		}
	}

	fmt.Fprintf(os.Stderr, "the first argument must be one of: %s\n", strings.Join(names(), ", "))
	os.Exit(2)

	return nil
}

func names() []string {
	found := make([]string, 0, len(programs))
	for name := range programs {
		found = append(found, name)
	}

	sort.Strings(found)

	return found
}
