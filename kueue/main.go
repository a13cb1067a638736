// Command disttrain-kueue lets Kueue decide when jobs of DistTrain run. It is what Kueue calls the
// controller of an external framework: it tells Kueue of a job's pods by a Workload, and resumes or
// suspends the job as Kueue decides. What both need is Kueue's own package jobframework.
package main

import (
	"errors"
	"flag"
	"os"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
)

const manager = "disttrain-kueue"

func main() {
	options := zap.Options{}
	options.BindFlags(flag.CommandLine)
	ready := flag.Bool("wait-for-pods-ready", false,
		"Tell Kueue whether a job's pods are ready, for a Kueue with waitForPodsReady.")
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&options)))

	if err := run(*ready); err != nil {
		ctrl.Log.Error(err, "cannot go on")
		os.Exit(1)
	}
}

func run(tellReady bool) error {
	scheme := runtime.NewScheme()

	err := errors.Join(
		corev1.AddToScheme(scheme),
		schedulingv1.AddToScheme(scheme),
		kueue.AddToScheme(scheme),
	)
	if err != nil {
		return err
	}

	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		HealthProbeBindAddress: ":8081",
		Metrics:                server.Options{BindAddress: ":8080"},
		// Jobs have no Go type; without this each look at one would be a request.
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		return err
	}

	ctx := ctrl.SetupSignalHandler()

	if err := jobframework.SetupWorkloadOwnerIndex(ctx, mgr.GetFieldIndexer(), kind); err != nil {
		return err
	}

	reconciler := jobframework.NewGenericReconcilerFactory(newJob)(
		mgr.GetClient(),
		mgr.GetEventRecorderFor(manager),
		jobframework.WithManagerName(manager),
		// Not in any case: it would come between Kueue and its own first words on a Workload.
		jobframework.WithWaitForPodsReady(&configapi.WaitForPodsReady{Enable: tellReady}),
	)

	return errors.Join(
		reconciler.SetupWithManager(mgr),
		mgr.AddHealthzCheck("healthz", healthz.Ping),
		mgr.AddReadyzCheck("readyz", healthz.Ping),
		mgr.Start(ctx),
	)
}
