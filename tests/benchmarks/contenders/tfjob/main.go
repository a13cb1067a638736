// Command tfjob runs the controller of TFJobs, with its webhook, as Kubeflow's training operator
// does. Its own program has no flag for the limits of requests and wants to make its certificates;
// this one is told both, and serves TFJobs alone.
package main

import (
	"errors"
	"flag"
	"os"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/controller.v1/tensorflow"
	webhooks "github.com/kubeflow/training-operator/pkg/webhooks/tensorflow"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

var (
	requests = flag.Int("requests-per-second", 20, "To the API server.")
	certDir  = flag.String("cert-dir", "", "Folder with tls.crt and tls.key for the webhook.")
)

func main() {
	flag.Parse()
	// As the training operator's own program does by default.
	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))

	if err := run(); err != nil {
		ctrl.Log.Error(err, "cannot go on")
		os.Exit(1)
	}
}

func run() error {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), kubeflow.AddToScheme(known)); err != nil {
		return err
	}

	config := ctrl.GetConfigOrDie()
	config.QPS, config.Burst = float32(*requests), *requests
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 known,
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: ":8081",
		WebhookServer:          webhook.NewServer(webhook.Options{CertDir: *certDir}),
	})
	if err != nil {
		return err
	}

	// One job at a time, as by default.
	const threads = 1
	jobs := tensorflow.NewReconciler(mgr, common.GenNonGangSchedulerSetupFunc())
	err = errors.Join(
		jobs.SetupWithManager(mgr, threads),
		webhooks.SetupWebhook(mgr),
		mgr.AddReadyzCheck("readyz", mgr.GetWebhookServer().StartedChecker()),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
